package ui

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/fleet"
)

func keyOf(d *v1beta1.MachineDeployment) types.NamespacedName {
	return types.NamespacedName{Namespace: d.Namespace, Name: d.Name}
}

// runningServer is a client of a running server, with its cookie.
type runningServer struct {
	*http.Client
	base, cookie string
}

// serve runs a server until the test ends. Open streams must not keep the server alive.
func serve(t *testing.T, source Source) runningServer {
	t.Helper()
	s, err := Listen(context.Background(), "127.0.0.1:0", Options{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c := runningServer{Client: &http.Client{CheckRedirect: stay},
		base: "http://" + s.listener.Addr().String()}
	link, _ := url.Parse(s.Link())
	answer, err := c.Get(link.String())
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	c.cookie = answer.Cookies()[0].String()
	return c
}

func (s runningServer) stream(t *testing.T) <-chan string {
	t.Helper()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+"/events", nil)
	r.Header.Set("Cookie", strings.SplitN(s.cookie, ";", 2)[0])
	answer, err := s.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if kind := answer.Header.Get("Content-Type"); answer.StatusCode != http.StatusOK || kind != "text/event-stream" {
		t.Fatalf("the stream: status %d, content type %s", answer.StatusCode, kind)
	}
	versions := make(chan string, 100)
	go func() {
		defer answer.Body.Close()
		defer close(versions)
		lines := bufio.NewScanner(answer.Body)
		for lines.Scan() {
			if version, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				versions <- version
			}
		}
	}()
	return versions
}

func next(t *testing.T, versions <-chan string) string {
	t.Helper()
	select {
	case v := <-versions:
		return v
	case <-time.After(time.Minute):
		t.Fatal("the stream sends nothing")
	}
	return ""
}

func TestStreamSendsEachChange(t *testing.T) {
	f := newFake()
	f.add("prod", "web", 1, nil)
	s := serve(t, f)
	one, two := s.stream(t), s.stream(t)
	first := next(t, one)
	if other := next(t, two); other != first {
		t.Errorf("two pages start with the versions %s and %s", first, other)
	}
	f.change(func(facts *fleet.Facts) { facts.Machines = facts.Machines[:0:0] })
	second := next(t, one)
	if second == first || next(t, two) != second {
		t.Errorf("the version is %s after a change, and %s before", second, first)
	}
}

func TestPagesShowLastStateDuringOutage(t *testing.T) {
	f := newFake()
	f.add("prod", "web", 1, nil)
	b := open(t, f)
	hub := b.server.hub
	before := hub.snapshot().Version
	f.mu.Lock()
	f.err, f.lost = errors.New("connection refused"), noon.Add(-time.Minute)
	f.mu.Unlock()
	if err := hub.read(context.Background(), false); err != nil {
		t.Fatal(err)
	}
	page := b.get("/machines", http.StatusOK)
	if !strings.Contains(page, "has not answered for") || !strings.Contains(page, "web-abcde-00000") {
		t.Errorf("the page is\n%s", page)
	}
	lost := hub.snapshot().Version
	if lost == before {
		t.Error("pages are not notified that the cluster does not answer")
	}
	f.mu.Lock()
	f.err, f.lost = nil, time.Time{}
	f.mu.Unlock()
	if err := hub.read(context.Background(), false); err != nil {
		t.Fatal(err)
	}
	if page := b.get("/machines", http.StatusOK); strings.Contains(page, "has not answered") || hub.snapshot().Version == lost {
		t.Error("pages are not notified that the cluster answers again")
	}
	version := hub.snapshot().Version
	if err := hub.read(context.Background(), false); err != nil || hub.snapshot().Version != version {
		t.Errorf("reading the same facts again changes the version from %d to %d: %v", version, hub.snapshot().Version, err)
	}
}

func TestNumberOfStreamsIsLimited(t *testing.T) {
	b := open(t, newFake())
	for range maxStreams {
		b.server.streams <- struct{}{}
	}
	b.get("/events", http.StatusServiceUnavailable)
}

func TestListenFailsWithoutFirstRead(t *testing.T) {
	f := newFake()
	f.err = errors.New("you may not list machines")
	if _, err := Listen(context.Background(), "127.0.0.1:0", Options{Source: f}); err == nil {
		t.Error("Listen succeeds")
	}
}
