//go:build e2e

package e2e

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy stands before several servers as a load balancer does: it knows of connections only, and gives each to the next
// server that accepts one.
type proxy struct {
	listener net.Listener

	mu      sync.Mutex
	servers []string
	next    int
	given   map[string]int
	vain    int // connections that no server accepted
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, given: map[string]int{}}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(from)
		}
	}()
	return p
}

func (p *proxy) add(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.servers = append(p.servers, server)
}

// order returns the servers, beginning with the one whose turn it is.
func (p *proxy) order() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	n := p.next % len(p.servers)
	return append(append([]string{}, p.servers[n:]...), p.servers[:n]...)
}

func (p *proxy) serve(from net.Conn) {
	defer from.Close()
	for _, server := range p.order() {
		to, err := net.Dial("tcp", server)
		if err != nil {
			continue
		}
		defer to.Close()
		p.mu.Lock()
		p.given[server]++
		p.mu.Unlock()
		var both sync.WaitGroup
		both.Go(func() { pour(from, to) })
		both.Go(func() { pour(to, from) })
		both.Wait()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.vain++
}

// pour copies all that comes, and tells the other side when no more does.
func pour(into, from net.Conn) {
	_, _ = io.Copy(into, from)
	_ = into.(*net.TCPConn).CloseWrite()
}

// connections returns how many were given to a server, and how many to none.
func (p *proxy) connections(server string) (given, vain int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.given[server], p.vain
}
