// Package link stands between a client and servers as a network does that can be cut.
package link

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// Link knows of TCP connections only, and gives each to the next server that accepts one, as a load balancer does. It
// is safe for use by several goroutines.
type Link struct {
	listener net.Listener

	mu      sync.Mutex
	servers []string
	next    int
	given   map[string]int
	vain    int // connections that no server accepted
	cut     Cut
	open    map[*connection]bool
}

// Cut is what has become of a link.
type Cut int

const (
	// Whole passes everything on.
	Whole Cut = iota
	// Refused breaks the connections that there are and accepts none.
	Refused
	// Swallowed is a black hole: connections are accepted and stay, and nothing that is sent arrives, not even their end.
	// When the link is mended they break, and what was swallowed is lost.
	Swallowed
)

// connection is both halves of one.
type connection struct {
	from, to net.Conn // to is nil while there is no server
	// lost says that something was sent while it was swallowed: there is a hole in the stream.
	lost bool
}

// Listen makes a link on loopback to the servers, more of which may be added.
func Listen(servers ...string) (*Link, error) { return ListenAt("127.0.0.1:0", servers...) }

// ListenAt makes a link at an address of this machine to the servers, more of which may be added.
func ListenAt(address string, servers ...string) (*Link, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for a link: %w", err)
	}
	l := &Link{listener: listener, servers: servers, given: map[string]int{}, open: map[*connection]bool{}}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go l.serve(&connection{from: from})
		}
	}()
	return l, nil
}

// Address is where clients connect to.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Add adds a server.
func (l *Link) Add(server string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.servers = append(l.servers, server)
}

// Connections returns how many were given to a server, and how many to none.
func (l *Link) Connections(server string) (given, vain int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.given[server], l.vain
}

// Become cuts the link, or mends it.
func (l *Link) Become(cut Cut) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	if cut == Swallowed {
		return
	}
	for c := range l.open {
		if cut == Refused || c.lost || c.to == nil {
			c.end()
		}
	}
}

// Close ends the link and all its connections.
func (l *Link) Close() error {
	l.Become(Refused)
	return l.listener.Close()
}

func (c *connection) end() {
	_ = c.from.Close()
	if c.to != nil {
		_ = c.to.Close()
	}
}

// order returns the servers, beginning with the one whose turn it is.
func (l *Link) order() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.servers) == 0 {
		return nil
	}
	l.next++
	n := l.next % len(l.servers)
	return append(append([]string{}, l.servers[n:]...), l.servers[:n]...)
}

func (l *Link) serve(c *connection) {
	defer c.from.Close()
	cut := l.enter(c)
	defer l.leave(c)
	switch cut {
	case Refused:
		return
	case Swallowed:
		_, _ = io.Copy(io.Discard, c.from) // until the link is mended, or the client gives up
		return
	}
	for _, server := range l.order() {
		to, err := net.Dial("tcp", server)
		if err != nil {
			continue
		}
		defer to.Close()
		if !l.connect(c, to, server) {
			return
		}
		var both sync.WaitGroup
		both.Go(func() { l.pour(c, to, c.from) })
		both.Go(func() { l.pour(c, c.from, to) })
		both.Wait()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.vain++
}

func (l *Link) enter(c *connection) Cut {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = true
	return l.cut
}

func (l *Link) leave(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}

// connect notes the server's half, unless the link was cut while it was sought.
func (l *Link) connect(c *connection, to net.Conn, server string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut == Refused {
		return false
	}
	c.to = to
	l.given[server]++
	return true
}

// pour copies all that comes, and tells the other side when no more does, unless it is swallowed.
func (l *Link) pour(c *connection, into, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if l.swallows(c) {
			if err != nil {
				return
			}
			continue
		}
		if n > 0 {
			if _, err := into.Write(buffer[:n]); err != nil {
				// The other direction must not wait for an end that cannot come.
				_ = from.Close()
				return
			}
		}
		if err != nil {
			_ = into.(*net.TCPConn).CloseWrite()
			return
		}
	}
}

// swallows reports whether what came on a connection is lost, and notes it.
func (l *Link) swallows(c *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.lost = c.lost || l.cut == Swallowed
	return c.lost
}
