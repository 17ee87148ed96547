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

type cuttableWatches struct {
	next http.RoundTripper

	mu     sync.Mutex
	cut    chan struct{} // closed while the watches are interrupted
	failed int           // number of watches that began since then
}

func (w *cuttableWatches) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.cut)
	w.failed = 0
}

func (w *cuttableWatches) restore() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = make(chan struct{})
}

func (w *cuttableWatches) failures() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

func (w *cuttableWatches) RoundTrip(request *http.Request) (*http.Response, error) {
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
	response.Body = &body{ReadCloser: response.Body, closed: cancel, cut: cut}
	return response, nil
}

type body struct {
	io.ReadCloser
	closed func()
	cut    <-chan struct{}
}

// Read implements io.Reader. After an interruption, it discards data.
func (b *body) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	select {
	case <-b.cut:
		return 0, errors.New("connection reset")
	default:
		return n, err
	}
}

func (b *body) Close() error {
	b.closed()
	return b.ReadCloser.Close()
}

func clusterWithCuttableWatches(t *testing.T) (*Cluster, *cuttableWatches) {
	t.Helper()
	watches := &cuttableWatches{cut: make(chan struct{})}
	config := rest.CopyConfig(planes.target.Config())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		if watches.next == nil {
			watches.next = next
		}
		return watches
	})
	c, err := newCluster(config, clusterOptions{
		scheme: testScheme(), kinds: []Kind{{Object: &corev1.Node{}, Transform: TransformNode}}, readTimeout: time.Second,
		fence: fence.AlwaysOpen(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CaughtUp(t.Context()); err != nil {
		t.Errorf("CaughtUp() = %v for a cache that is not filled", err)
	}
	fillCache(t, c)
	return c, watches
}

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

// CaughtUp must detect every kind of difference while the watches are interrupted. CaughtUp must return when the cache
// contains the same objects as the API server again.
//
// Rule: outage-ends-with-caches.
func TestCaughtUpWaitsUntilTheCacheEqualsTheAPIServer(t *testing.T) {
	nodes := clientset(t, planes.target.Config()).CoreV1().Nodes()
	newNode(t, "old")
	c, watches := clusterWithCuttableWatches(t)
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
			return fmt.Errorf("the cache contains %v, want %v", got, names)
		}
		return nil
	}
	if err := within(patience); err != nil || shows("old") != nil {
		t.Fatalf("before the interruption: %v, %v", err, shows("old"))
	}
	for _, step := range []struct {
		difference string
		change     func()
		shows      []string
	}{
		{"new has changed", func() { newNode(t, "new") }, []string{"new", "old"}},
		{"new was deleted", func() {
			if err := nodes.Delete(t.Context(), "new", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}, []string{"old"}},
		{"old has changed", func() {
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
		watches.interrupt()
		step.change()
		if err := within(time.Second); !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), step.difference) {
			t.Errorf("without watches: %v, want the difference %q", err, step.difference)
		}
		// Without another write, the cache stays at a lower resource version than the list.
		watches.restore()
		if err := within(patience); err != nil {
			t.Errorf("with watches: %v", err)
		}
		if err := shows(step.shows...); err != nil {
			t.Error(err)
		}
	}
	// CaughtUp must return although a watch is interrupted, if the watch misses no event. A write to another kind must
	// not delay the return of CaughtUp.
	watches.interrupt()
	defer watches.restore()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "process-"}}
	if _, err := clientset(t, planes.target.Config()).CoreV1().Namespaces().Create(t.Context(), ns,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := within(time.Second); err != nil {
		t.Errorf("after a write of another kind: %v", err)
	}
}

// With the default backoff, an informer would wait at least 13 seconds after five failures, and later a minute.
//
// Rule: outage-ends-with-caches.
func TestACacheCatchesUpSoonAfterALongOutage(t *testing.T) {
	const failures, soon = 5, 10 * time.Second
	c, watches := clusterWithCuttableWatches(t)
	watches.interrupt()
	eventually(t, func() error {
		if n := watches.failures(); n < failures {
			return fmt.Errorf("%d watches failed", n)
		}
		return nil
	})
	node := newNode(t, "late")
	watches.restore()
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
func TestMissingEvent(t *testing.T) {
	node := func(name, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
	}
	live := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "20"}}
	for _, n := range []*corev1.Node{node("a", "5"), node("b", "15")} {
		live.Items = append(live.Items, metav1.PartialObjectMetadata{ObjectMeta: n.ObjectMeta})
	}
	for name, test := range map[string]struct {
		cached  []any
		version string // version of the cache
		want    string
	}{
		"none, the cache has been idle for long":            {[]any{node("a", "5"), node("b", "15")}, "16", ""},
		"an object that was created":                        {[]any{node("a", "5")}, "14", "b has changed"},
		"a change":                                          {[]any{node("a", "5"), node("b", "9")}, "14", "b has changed"},
		"a change, with a version that sorts later as text": {[]any{node("a", "5"), node("b", "2")}, "9", "b has changed"},
		"a deletion":                                        {[]any{node("a", "5"), node("b", "15"), node("c", "7")}, "16", "c was deleted"},
		"none, another shard has the object":                {[]any{node("a", "5")}, "16", ""},
		"none, the cache is newer":                          {[]any{node("a", "25"), node("b", "15"), node("c", "24")}, "25", ""},
		"none, an object was created after the list":        {[]any{node("a", "5"), node("b", "15"), node("c", "21")}, "21", ""},
		"none, an object was deleted after the list":        {[]any{node("a", "5")}, "21", ""},
		"none, the cache is empty and newer":                {nil, "20", ""},
		"an empty cache without a version":                  {nil, "", "a has changed"},
	} {
		t.Run(name, func(t *testing.T) {
			store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
			for _, o := range test.cached {
				if err := store.Add(o); err != nil {
					t.Fatal(err)
				}
			}
			store.Bookmark(test.version)
			if got := missingEvent(store, live); got != test.want {
				t.Errorf("missingEvent() = %q, want %q", got, test.want)
			}
		})
	}
}
