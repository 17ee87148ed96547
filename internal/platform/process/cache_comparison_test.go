package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/platform/process/fence"
)

// watchesCut is a transport that can cut the watches off, and those alone.
type watchesCut struct {
	next http.RoundTripper

	mu     sync.Mutex
	cut    chan struct{} // closed when they are cut off
	failed int           // how many were begun since then
}

func (w *watchesCut) off() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.cut)
	w.failed = 0
}

func (w *watchesCut) on() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = make(chan struct{})
}

func (w *watchesCut) failures() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

func (w *watchesCut) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Query().Get("watch") == "" {
		return w.next.RoundTrip(request)
	}
	w.mu.Lock()
	cut := w.cut
	select {
	case <-cut:
		w.failed++
		w.mu.Unlock()
		return nil, errors.New("connection refused")
	default:
		w.mu.Unlock()
	}
	ctx, cancel := context.WithCancel(request.Context())
	go func() {
		select {
		case <-cut:
		case <-ctx.Done():
		}
		cancel()
	}()
	response, err := w.next.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = &body{ReadCloser: response.Body, closed: cancel}
	return response, nil
}

type body struct {
	io.ReadCloser
	closed func()
}

func (b *body) Close() error {
	b.closed()
	return b.ReadCloser.Close()
}

// cutOff returns the target cluster with its Nodes in the cache, and what can cut its watches off.
func cutOff(t *testing.T) (*Cluster, *watchesCut) {
	t.Helper()
	readiness := &watchesCut{cut: make(chan struct{})}
	config := rest.CopyConfig(planes.target.Config())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		if readiness.next == nil {
			readiness.next = next
		}
		return readiness
	})
	c, err := newCluster(config, clusterOptions{
		scheme: testScheme(), kinds: []Kind{{Object: &corev1.Node{}, Transform: TransformNode}}, readTimeout: time.Second,
		fence: fence.AlwaysOpen(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CaughtUp(t.Context()); err != nil {
		t.Errorf("of a cache that cannot be read: %v", err)
	}
	fillCache(t, c)
	return c, readiness
}

// newNode makes a node for as long as the test lasts.
func newNode(t *testing.T, name string) *corev1.Node {
	t.Helper()
	nodes := clientset(t, planes.target.Config()).CoreV1().Nodes()
	node, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nodes.Delete(context.Background(), name, metav1.DeleteOptions{}); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	return node
}

// The API server answers, and its watches do not: what is cached is from before. Whatever it lacks, that is noticed,
// and so is when it has come.
//
// Rule: outage-ends-with-caches.
func TestACacheHasCaughtUpWhenItShowsWhatTheAPIServerHas(t *testing.T) {
	nodes := clientset(t, planes.target.Config()).CoreV1().Nodes()
	newNode(t, "old")
	c, readiness := cutOff(t)
	within := func(d time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		return c.CaughtUp(ctx)
	}
	shows := func(names ...string) error {
		list := &corev1.NodeList{}
		if err := c.Client.List(t.Context(), list); err != nil {
			return err
		}
		var got []string
		for _, n := range list.Items {
			got = append(got, n.Name+n.Labels["changed"])
		}
		if slices.Sort(got); !slices.Equal(got, names) {
			return fmt.Errorf("it shows %v, want %v", got, names)
		}
		return nil
	}
	if err := within(patience); err != nil || shows("old") != nil {
		t.Fatalf("in order: %v, %v", err, shows("old"))
	}
	for _, step := range []struct {
		lacks  string
		change func()
		shows  []string
	}{
		{"new is missing", func() { newNode(t, "new") }, []string{"new", "old"}},
		{"new is still there", func() {
			if err := nodes.Delete(t.Context(), "new", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}, []string{"old"}},
		{"old is old", func() {
			node, err := nodes.Get(t.Context(), "old", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			node.Labels = map[string]string{"changed": "2"}
			if _, err := nodes.Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, []string{"old2"}},
	} {
		readiness.off()
		step.change()
		if err := within(time.Second); !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), step.lacks) {
			t.Errorf("without watches: %v, want that %s", err, step.lacks)
		}
		// Nothing else happens, so that no version tells.
		readiness.on()
		if err := within(patience); err != nil {
			t.Errorf("with watches: %v", err)
		}
		if err := shows(step.shows...); err != nil {
			t.Error(err)
		}
	}
	// Writes of other kinds and the end of a watch to which nothing happened are no reason to wait.
	readiness.off()
	defer readiness.on()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "operator-"}}
	if _, err := clientset(t, planes.target.Config()).CoreV1().Namespaces().Create(t.Context(), ns,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := within(time.Second); err != nil {
		t.Errorf("after a write of another kind: %v", err)
	}
}

// After so many failures an informer that gets them waits for 13 seconds at least, and after more for a minute.
//
// Rule: outage-ends-with-caches.
func TestACacheCatchesUpSoonHoweverLongItWasCutOff(t *testing.T) {
	const failures, soon = 5, 10 * time.Second
	c, readiness := cutOff(t)
	readiness.off()
	eventually(t, func() error {
		if n := readiness.failures(); n < failures {
			return fmt.Errorf("%d watches failed", n)
		}
		return nil
	})
	node := newNode(t, "late")
	readiness.on()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := c.CaughtUp(ctx); err != nil {
		t.Error(err)
	}
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(node), &corev1.Node{}); err != nil {
		t.Error(err)
	}
}

// Rule: outage-ends-with-caches.
func TestWhatACacheLacks(t *testing.T) {
	node := func(name, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
	}
	at20 := snapshot{version: "20", objects: map[string]string{"a": "5", "b": "15"}}
	for name, test := range map[string]struct {
		cached  []any
		version string // of the cache
		want    string
	}{
		"nothing, idle since long ago": {[]any{node("a", "5"), node("b", "15")}, "16", ""},
		"one":                          {[]any{node("a", "5")}, "14", "b is missing"},
		"a change":                     {[]any{node("a", "5"), node("b", "9")}, "14", "b is old"},
		"a change, by number":          {[]any{node("a", "5"), node("b", "2")}, "14", "b is old"},
		"a deletion": {[]any{node("a", "5"), node("b", "15"), node("c", "7")}, "16",
			"c is still there"},
		"nothing, it is ahead":              {[]any{node("a", "25"), node("b", "15"), node("c", "24")}, "25", ""},
		"nothing, one was deleted since":    {[]any{node("a", "5")}, "21", ""},
		"nothing, and there is none":        {nil, "20", ""},
		"something, its version is unknown": {nil, "", " is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
			for _, o := range test.cached {
				if err := store.Add(o); err != nil {
					t.Fatal(err)
				}
			}
			if test.version != "" {
				store.Bookmark(test.version)
			}
			if got := at20.lacking(store); (got == "") != (test.want == "") || !strings.HasSuffix(got, test.want) {
				t.Errorf("it lacks %q, want %q", got, test.want)
			}
		})
	}
}
