package objectmetrics

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestOnlyALeaderExports(t *testing.T) {
	desc := prometheus.NewDesc("things", "Things by kind.", []string{"kind"}, nil)
	var failure error
	c := New(func(_ context.Context, export Export) error {
		export(desc, 2, "a")
		if failure == nil {
			export(desc, 3, "b")
		}
		return failure
	}, desc)
	if n := testutil.CollectAndCount(c); n != 0 {
		t.Errorf("%d series are exported by a process that does not lead, want none", n)
	}
	c.StartExport()
	if n := testutil.CollectAndCount(c); n != 2 {
		t.Errorf("%d series are exported, expected 2", n)
	}
	failure = errors.New("the cache does not answer")
	if n := testutil.CollectAndCount(c); n != 1 {
		t.Errorf("%d series are exported before the failure, expected 1", n)
	}
}
