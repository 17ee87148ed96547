package link

import (
	"bufio"
	"net"
	"testing"
	"time"
)

const patience = 30 * time.Second

func startEchoServer(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					if _, err := c.Write([]byte(lines.Text() + "\n")); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

type client struct {
	net.Conn
	lines *bufio.Reader
}

func connect(t *testing.T, l *Link) client {
	t.Helper()
	c, err := net.Dial("tcp", l.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return client{c, bufio.NewReader(c)}
}

func (c client) ask(line string, timeout time.Duration) (string, error) {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	if _, err := c.Write([]byte(line + "\n")); err != nil {
		return "", err
	}
	return c.lines.ReadString('\n')
}

func newLink(t *testing.T, servers ...string) *Link {
	t.Helper()
	l, err := Listen(servers...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestLinkDistributesConnectionsAmongServersThatAccept(t *testing.T) {
	first, second := startEchoServer(t), startEchoServer(t)
	l := newLink(t, first, "127.0.0.1:1", second)
	for range 6 {
		if got, err := connect(t, l).ask("hello", patience); got != "hello\n" || err != nil {
			t.Fatalf("got %q and %v, want hello", got, err)
		}
	}
	for _, server := range []string{first, second} {
		if forwarded, failed := l.Connections(server); forwarded < 2 || failed != 0 {
			t.Errorf("%s: got %d forwarded and %d failed connections, want at least 2 and 0", server, forwarded, failed)
		}
	}
}

func TestRefusedLinkClosesConnectionsAndAcceptsNone(t *testing.T) {
	l := newLink(t, startEchoServer(t))
	before := connect(t, l)
	if _, err := before.ask("one", patience); err != nil {
		t.Fatal(err)
	}
	l.SetCut(CutRefuse)
	if got, err := before.ask("two", patience); err == nil {
		t.Errorf("the old connection still works: got %q", got)
	}
	if got, err := connect(t, l).ask("three", patience); err == nil {
		t.Errorf("a new connection works: got %q", got)
	}
	l.SetCut(CutNone)
	if got, err := connect(t, l).ask("four", patience); got != "four\n" || err != nil {
		t.Errorf("after the interruption: got %q and %v, want four", got, err)
	}
}

func TestSwallowedLinkDropsDataWithoutError(t *testing.T) {
	l := newLink(t, startEchoServer(t))
	used, idle := connect(t, l), connect(t, l)
	for _, c := range []client{used, idle} {
		if _, err := c.ask("one", patience); err != nil {
			t.Fatal(err)
		}
	}
	l.SetCut(CutDrop)
	added := connect(t, l)
	for name, c := range map[string]client{"old": used, "new": added} {
		got, err := c.ask("two", 200*time.Millisecond)
		if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() {
			t.Errorf("the %s connection: got %q and %v, want a timeout", name, got, err)
		}
	}
	l.SetCut(CutNone)
	for name, c := range map[string]client{"old": used, "new": added} {
		if got, err := c.ask("three", patience); err == nil {
			t.Errorf("the %s connection still works although it lost data: got %q", name, got)
		}
	}
	if got, err := idle.ask("four", patience); got != "four\n" || err != nil {
		t.Errorf("the idle connection: got %q and %v, want four", got, err)
	}
}
