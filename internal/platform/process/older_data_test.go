package process

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// Rule: older-data-ends-process.
func TestOlderData(t *testing.T) {
	for _, test := range []struct {
		now, before string
		older       bool
	}{
		{"99", "100", true},
		{"100", "100", false},
		{"101", "100", false},
		{"1000", "999", false},
		{"", "100", false},
		{"100", "", false},
		{"x", "100", false},
	} {
		if err := olderData("machines", test.now, test.before); errors.Is(err, errOlderData) != test.older {
			t.Errorf("at %q after %q: %v", test.now, test.before, err)
		}
	}
}

type fakeAPI struct {
	version string
	fails   error
	lists   int
	watches []string
}

func (d *fakeAPI) listWatch(older *error) *sameHistory {
	return &sameHistory{what: "nodes", onOlderData: func(err error) { *older = err },
		ListerWatcherWithContext: &toolscache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				d.lists++
				return &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: d.version}}, d.fails
			},
			WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
				d.watches = append(d.watches, o.ResourceVersion)
				return watch.NewFake(), nil
			},
		}}
}

// After a restore of older data, the API server has lower resource versions than the cache. A watch from the cache's
// version would receive no events until new writes reach this version. Therefore the watch must fail.
//
// Rule: older-data-ends-process.
func TestAWatchDoesNotContinueAfterARestoreOfOlderData(t *testing.T) {
	list := func(version string) func(*sameHistory) error {
		return func(h *sameHistory) error {
			_, err := h.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: version})
			return err
		}
	}
	watchFrom := func(version string) func(*sameHistory) error {
		return func(h *sameHistory) error {
			_, err := h.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: version})
			return err
		}
	}
	forbidden := apierrors.NewForbidden(corev1.Resource("nodes"), "", nil)
	for name, test := range map[string]struct {
		then func(*fakeAPI)
		last func(*sameHistory) error
		// If older is true, the ListerWatcher must report older data. If fails is true, the last request must fail.
		older, fails bool
		lists        int // number of lists after the first list
	}{
		"a watch that follows the list":           {func(*fakeAPI) {}, watchFrom("100"), false, false, 0},
		"a watch after another that broke off":    {func(d *fakeAPI) { d.version = "150" }, watchFrom("140"), false, false, 1},
		"a watch after a restore":                 {func(d *fakeAPI) { d.version = "90" }, watchFrom("140"), true, true, 1},
		"a list after a restore":                  {func(d *fakeAPI) { d.version = "90" }, list(""), true, false, 1},
		"a list from the cache of a server":       {func(d *fakeAPI) { d.version = "90" }, list("0"), false, false, 1},
		"a newer list":                            {func(d *fakeAPI) { d.version = "150" }, list("100"), false, false, 1},
		"a watch that begins with a list":         {func(d *fakeAPI) { d.version = "90" }, watchFrom(""), false, false, 0},
		"a server that does not answer the check": {func(d *fakeAPI) { d.fails = forbidden }, watchFrom("140"), false, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			d := &fakeAPI{version: "100"}
			var older error
			h := d.listWatch(&older)
			if err := list("")(h); err != nil {
				t.Fatal(err)
			}
			test.then(d)
			if err := test.last(h); (err != nil) != test.fails {
				t.Errorf("the request: %v", err)
			}
			if errors.Is(older, errOlderData) != test.older {
				t.Errorf("older data: %v", older)
			}
			if d.lists-1 != test.lists {
				t.Errorf("%d lists, want %d", d.lists-1, test.lists)
			}
		})
	}

	t.Run("a server that answers only the second check", func(t *testing.T) {
		d := &fakeAPI{version: "100"}
		var older error
		h := d.listWatch(&older)
		_ = list("")(h)
		d.fails = forbidden
		_ = watchFrom("140")(h)
		d.fails, d.version = nil, "120"
		if err := watchFrom("140")(h); err == nil || older == nil || len(d.watches) > 0 {
			t.Errorf("%v, older data: %v, watches from %v", err, older, d.watches)
		}
	})

	t.Run("a server that answers only the next list", func(t *testing.T) {
		d := &fakeAPI{version: "100"}
		var older error
		h := d.listWatch(&older)
		_ = list("")(h)
		d.fails = forbidden
		_ = watchFrom("140")(h)
		d.fails, d.version = nil, "120"
		_ = list("")(h)
		if older == nil || !strings.Contains(older.Error(), "140") {
			t.Errorf("older data: %v", older)
		}
		if len(d.watches) > 0 {
			t.Errorf("watches from %v", d.watches)
		}
	})
}
