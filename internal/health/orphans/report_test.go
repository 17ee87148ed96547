package orphans

import (
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/internal/health/orphans/ledger"
	"machinist.dev/machinist/pkg/provider"
)

func (w *testCollector) page() (ledger.Page, string) {
	w.Helper()
	retained := &corev1.ConfigMap{}
	if err := w.api.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: ledger.Name}, retained); err != nil {
		w.Fatal(err)
	}
	page, err := ledger.Decode(retained.Data[ledger.Key(w.namespace, w.namespace)])
	if err != nil {
		w.Fatal(err)
	}
	return page, retained.ResourceVersion
}

// Rule: orphan-report-kept.
func TestResultOfPassIsRecorded(t *testing.T) {
	w := newTestCollector(t, func(r *Rules) { r.ReportOnly = true })
	w.collector.Ledger = ledger.Store{Client: w.api, Namespace: w.namespace}
	w.reconcile()
	page, empty := w.page()
	if page.Total != 0 || page.Period != int64((30*time.Minute)/time.Second) || page.Stopped != "" {
		t.Errorf("kept %+v of nothing", page)
	}
	w.pass()
	if _, version := w.page(); version != empty {
		t.Error("a pass that found nothing new wrote")
	}

	orphan := w.createOrphan(1)
	w.pass()
	seen := w.clock.Now()
	page, _ = w.page()
	if page.Total != 1 || len(page.Entries) != 1 || page.Entries[0].ProviderID != orphan.ProviderID ||
		page.Entries[0].Outcome != string(OutcomeUnconfirmed) ||
		page.Entries[0].Source != w.namespace+"/small" || !page.Entries[0].FirstSeen.Equal(seen.UTC().Truncate(time.Second)) {
		t.Errorf("kept %+v", page)
	}
	w.pass()
	page, reported := w.page()
	if page.Entries[0].Outcome != string(OutcomeReport) {
		t.Errorf("kept %+v", page)
	}
	w.pass()
	if _, version := w.page(); version != reported {
		t.Error("a pass that found nothing new wrote")
	}

	// A new process finds the time of the first observation in the ledger.
	w.collector = New(w.collector.Options)
	w.reconcile()
	if page, _ = w.page(); page.Entries[0].Outcome != string(OutcomeUnconfirmed) ||
		!page.Entries[0].FirstSeen.Equal(seen.UTC().Truncate(time.Second)) {
		t.Errorf("kept %+v after a restart", page)
	}
}

// Rule: orphan-report-kept.
func TestUnlistedClassesAreRecorded(t *testing.T) {
	w := newTestCollector(t)
	w.collector.Ledger = ledger.Store{Client: w.api, Namespace: w.namespace}
	w.classOf("dark", "dark")
	if err := w.api.Delete(t.Context(), w.secret("dark")); err != nil {
		t.Fatal(err)
	}
	w.cloud.OnList = func(account string, _ int) error {
		if account == "small" {
			return provider.Errorf(provider.Unavailable, "no answer with a %s", "secret")
		}
		return nil
	}
	w.reconcile()
	page, _ := w.page()
	want := []ledger.FailedList{{Source: w.namespace + "/dark", Why: "CredentialsNotFound"},
		{Source: w.namespace + "/small", Why: "Unavailable"}}
	if len(page.Unlisted) != 2 || page.Unlisted[0] != want[0] || page.Unlisted[1] != want[1] {
		t.Errorf("kept %+v, want %+v", page.Unlisted, want)
	}
	w.mismatch = errTest
	w.pass()
	if page, _ = w.page(); page.Stopped != errTest.Error() || page.Unlisted != nil {
		t.Errorf("kept %+v of a mismatch", page)
	}
}

// An error that does not change, such as that of an invalid class, is logged once.
//
// Rule: orphan-report-kept.
func TestErrorOfAListIsLoggedOnce(t *testing.T) {
	w := newTestCollector(t)
	var lines []string
	ctx := logf.IntoContext(t.Context(), funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
	code := provider.InvalidArgument
	w.cloud.OnList = func(string, int) error { return provider.Errorf(code, "no list") }
	for i, want := range []int{1, 1, 2, 2} {
		if i == 2 {
			code = provider.Unavailable
		}
		w.clock.SetTime(w.clock.Now().Add(w.collector.Rules.Period))
		if _, err := w.collector.Reconcile(ctx, reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
		if len(lines) != want {
			t.Fatalf("after pass %d, the log has %d lines, want %d: %q", i+1, len(lines), want, lines)
		}
	}
}

var errTest = provider.Errorf(provider.Internal, "the cluster ID is another one")
