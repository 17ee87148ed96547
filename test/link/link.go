// Package link simulates an unreliable network between clients and servers.
package link

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// Link forwards TCP connections. Like a load balancer, a Link forwards each connection to the next server that accepts
// the connection. A Link is safe for concurrent use.
type Link struct {
	listener net.Listener

	mu        sync.Mutex
	servers   []string
	next      int
	forwarded map[string]int // connections by server
	failed    int            // connections that no server accepted
	cut       Cut
	open      map[*connection]bool
}

// Cut defines how a link is interrupted.
type Cut int

const (
	// CutNone means that the link is not interrupted.
	CutNone Cut = iota
	// CutRefuse means that the link closes all connections and accepts no new connections.
	CutRefuse
	// CutDrop means that the link drops all data, and the end of connections, without an error. Connections stay
	// open, and the link accepts new connections. Connections that lost data are closed when the link is no longer
	// interrupted (CutNone).
	CutDrop
)

type connection struct {
	from, to net.Conn // nil until a server has accepted the connection
	// hasLostData is true if the link dropped data or the end of the connection.
	hasLostData bool
}

// Listen creates a link on loopback to the servers. Add adds more servers.
func Listen(servers ...string) (*Link, error) { return ListenAt("127.0.0.1:0", servers...) }

// ListenAt creates a link at an address of this host to the servers. Add adds more servers.
func ListenAt(address string, servers ...string) (*Link, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for a link: %w", err)
	}
	l := &Link{listener: listener, servers: servers, forwarded: map[string]int{}, open: map[*connection]bool{}}
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

// Address returns the address that clients connect to.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Add adds a server.
func (l *Link) Add(server string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.servers = append(l.servers, server)
}

// Connections returns how many connections were forwarded to the server, and how many connections no server accepted.
func (l *Link) Connections(server string) (forwarded, failed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.forwarded[server], l.failed
}

// SetCut sets how the link is interrupted.
func (l *Link) SetCut(cut Cut) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	if cut == CutDrop {
		return
	}
	for c := range l.open {
		if cut == CutRefuse || c.hasLostData || c.to == nil {
			c.close()
		}
	}
}

// Close ends the link and all its connections.
func (l *Link) Close() error {
	l.SetCut(CutRefuse)
	return l.listener.Close()
}

func (c *connection) close() {
	_ = c.from.Close()
	if c.to != nil {
		_ = c.to.Close()
	}
}

// nextServers returns the servers in the order in which a connection must try them. If there are several servers,
// consecutive calls start with different servers.
func (l *Link) nextServers() []string {
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
	cut := l.add(c)
	defer l.remove(c)
	switch cut {
	case CutRefuse:
		return
	case CutDrop:
		_, _ = io.Copy(io.Discard, c.from) // until SetCut or the client closes the connection
		return
	}
	for _, server := range l.nextServers() {
		to, err := net.Dial("tcp", server)
		if err != nil {
			continue
		}
		defer to.Close()
		if !l.setServer(c, to, server) {
			return
		}
		var both sync.WaitGroup
		both.Go(func() { l.forward(c, to, c.from) })
		both.Go(func() { l.forward(c, c.from, to) })
		both.Wait()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed++
}

func (l *Link) add(c *connection) Cut {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = true
	return l.cut
}

func (l *Link) remove(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}

func (l *Link) setServer(c *connection, to net.Conn, server string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut == CutRefuse {
		return false
	}
	c.to = to
	l.forwarded[server]++
	return true
}

func (l *Link) forward(c *connection, into, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if l.drops(c) {
			if err != nil {
				return
			}
			continue
		}
		if n > 0 {
			if _, err := into.Write(buffer[:n]); err != nil {
				// Otherwise, the goroutine for the opposite direction would wait forever for the end of the stream.
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

// drops reports whether the link must drop the data of a connection. If so, drops also marks the connection as lossy.
func (l *Link) drops(c *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.hasLostData = c.hasLostData || l.cut == CutDrop
	return c.hasLostData
}
