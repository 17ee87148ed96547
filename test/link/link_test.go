package link

import (
	"bufio"
	"net"
	"testing"
	"time"
)

// patience bounds what must happen soon.
const patience = 30 * time.Second

// echo serves each connection its own lines.
func echo(t *testing.T) string {
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

// ask sends a line and returns what comes back within a time.
func (c client) ask(line string, within time.Duration) (string, error) {
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
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

func TestConnectionsGoToEachServerInTurnThatAccepts(t *testing.T) {
	first, second := echo(t), echo(t)
	l := newLink(t, first, "127.0.0.1:1", second)
	for range 6 {
		if got, err := connect(t, l).ask("hello", patience); got != "hello\n" || err != nil {
			t.Fatal(got, err)
		}
	}
	for _, server := range []string{first, second} {
		if given, vain := l.Connections(server); given < 2 || vain != 0 {
			t.Errorf("%d were given to %s, %d to none", given, server, vain)
		}
	}
}

func TestARefusedLinkBreaksWhatThereIsAndTakesNothingUntilItIsMended(t *testing.T) {
	l := newLink(t, echo(t))
	before := connect(t, l)
	if _, err := before.ask("one", patience); err != nil {
		t.Fatal(err)
	}
	l.Become(Refused)
	if got, err := before.ask("two", patience); err == nil {
		t.Errorf("what there was goes on: %q", got)
	}
	if got, err := connect(t, l).ask("three", patience); err == nil {
		t.Errorf("another begins: %q", got)
	}
	l.Become(Whole)
	if got, err := connect(t, l).ask("four", patience); got != "four\n" || err != nil {
		t.Error(got, err)
	}
}

func TestABlackHoleLosesWhatIsSentAndSaysNothing(t *testing.T) {
	l := newLink(t, echo(t))
	used, idle := connect(t, l), connect(t, l)
	for _, c := range []client{used, idle} {
		if _, err := c.ask("one", patience); err != nil {
			t.Fatal(err)
		}
	}
	l.Become(Swallowed)
	begun := connect(t, l)
	for name, c := range map[string]client{"old": used, "new": begun} {
		got, err := c.ask("two", 200*time.Millisecond)
		if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() {
			t.Errorf("the %s connection gave %q and %v, want silence", name, got, err)
		}
	}
	l.Become(Whole)
	for name, c := range map[string]client{"old": used, "new": begun} {
		if got, err := c.ask("three", patience); err == nil {
			t.Errorf("the %s connection goes on, with a hole in it: %q", name, got)
		}
	}
	if got, err := idle.ask("four", patience); got != "four\n" || err != nil {
		t.Errorf("the one that sent nothing: %q %v", got, err)
	}
}
