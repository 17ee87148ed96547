package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func read(t *testing.T, c client.Client, key string) (Page, int) {
	t.Helper()
	stored := &corev1.ConfigMap{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "system", Name: Name}, stored); err != nil {
		t.Fatal(err)
	}
	page, err := Decode(stored.Data[key])
	if err != nil {
		t.Fatal(err)
	}
	return page, len(stored.Data[key])
}

// Rule: orphan-report-kept.
func TestPageSizeIsLimited(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	page := Page{Provider: "sim", Total: 5000}
	for i := range 5000 {
		page.Entries = append(page.Entries, Entry{ProviderID: fmt.Sprint(i) + strings.Repeat("é", 10_000),
			Machine: strings.Repeat("m", 10_000), Parts: make([]string, 100)})
		page.Unlisted = append(page.Unlisted, FailedList{Source: strings.Repeat("s", 10_000)})
	}
	if err := (Store{c, "system"}).Keep(t.Context(), page); err != nil {
		t.Fatal(err)
	}
	stored, size := read(t, c, "sim")
	if stored.Total != 5000 || len(stored.Entries) != MostEntries || len(stored.Unlisted) != MostEntries ||
		size > 200_000 || len(stored.Entries[0].Parts) != maxParts {
		t.Errorf("kept %d of %d in %d bytes", len(stored.Entries), stored.Total, size)
	}
}

// Rule: orphan-report-kept.
func TestProvidersDoNotOverwriteEachOther(t *testing.T) {
	conflicts := 0
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			if conflicts++; conflicts == 1 {
				return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, Name, fmt.Errorf("another was faster"))
			}
			return c.Update(ctx, o, options...)
		},
	})
	book := Store{c, "system"}
	for _, page := range []Page{{Provider: "sim", Total: 1}, {Provider: "azure", Total: 2},
		{Provider: "azure", Namespace: "prod", Total: 3}} {
		if err := book.Keep(t.Context(), page); err != nil {
			t.Fatal(err)
		}
	}
	for key, want := range map[string]int{"sim": 1, "azure": 2, "azure.prod": 3} {
		if page, _ := read(t, c, key); page.Total != want {
			t.Errorf("%s: kept %+v", key, page)
		}
	}
	if conflicts != 3 {
		t.Errorf("%d updates, want one again after a conflict", conflicts)
	}
}

// Rule: orphan-report-kept.
func TestUnreadablePageIsReplaced(t *testing.T) {
	stored := &corev1.ConfigMap{Data: map[string]string{"sim": "{"}}
	stored.Namespace, stored.Name = "system", Name
	c := fake.NewClientBuilder().WithObjects(stored).Build()
	if err := (Store{c, "system"}).Keep(t.Context(), Page{Provider: "sim", WriteTime: time.Now(), Total: 1}); err != nil {
		t.Fatal(err)
	}
	if page, _ := read(t, c, "sim"); page.Total != 1 {
		t.Errorf("kept %+v", page)
	}
}

func TestConflictsAreRetried(t *testing.T) {
	for failures, want := range []error{nil, nil, nil, errChanged} {
		c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				if failures--; failures >= 0 {
					return errChanged
				}
				return c.Create(ctx, o, options...)
			},
		})
		if err := (Store{c, "system"}).Keep(t.Context(), Page{Provider: "sim"}); !errors.Is(err, want) {
			t.Errorf("Keep returns %v, want %v", err, want)
		}
	}
}

var errChanged = apierrors.NewConflict(corev1.Resource("configmaps"), Name, errors.New("changed"))

// Rule: orphan-report-kept.
func TestEachShardHasItsOwnPage(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	keys := func(shards ...string) []string {
		t.Helper()
		for _, shard := range shards {
			if err := (Store{c, "system"}).Keep(t.Context(), Page{Provider: "sim", Shard: shard}); err != nil {
				t.Fatal(err)
			}
		}
		stored := &corev1.ConfigMap{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "system", Name: Name}, stored); err != nil {
			t.Fatal(err)
		}
		return slices.Sorted(maps.Keys(stored.Data))
	}
	for _, page := range []Page{{Provider: "other"}, {Provider: "sim", Namespace: "team"}} {
		if err := (Store{c, "system"}).Keep(t.Context(), page); err != nil {
			t.Fatal(err)
		}
	}
	others := []string{"other", "sim.team"}
	for _, test := range []struct{ shards, want []string }{
		{[]string{""}, []string{"other", "sim", "sim.team"}},
		{[]string{"0-of-2", "1-of-2"}, append(others[:1:1], "sim.shard.0-of-2", "sim.shard.1-of-2", "sim.team")},
		{[]string{"2-of-3"}, append(others[:1:1], "sim.shard.2-of-3", "sim.team")},
		{[]string{""}, []string{"other", "sim", "sim.team"}},
	} {
		if got := keys(test.shards...); !slices.Equal(got, test.want) {
			t.Errorf("after pages of %q there are %q, want %q", test.shards, got, test.want)
		}
	}
}

// The entries of force-deleted Machines are kept in later passes, even if the number of shards changes.
//
// Rule: left-instance-removed.
func TestForceDeletedEntriesAreKept(t *testing.T) {
	book := Store{fake.NewClientBuilder().Build(), "system"}
	for i, shard := range []string{"1-of-2", "0-of-2"} {
		for range 2 {
			entry := Entry{UID: fmt.Sprint(i), Machine: "ns/m", FirstSeen: time.Unix(int64(i), 0)}
			if err := book.AddForceDeleted(t.Context(), Page{Provider: "sim", Shard: shard}, entry); err != nil {
				t.Fatal(err)
			}
		}
	}
	uids := func() (uids []string) {
		all, err := book.ForceDeleted(t.Context(), "sim", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			uids = append(uids, e.UID)
		}
		return uids
	}
	page := Page{Provider: "sim", Total: 1}
	for range 2 {
		if err := book.Keep(t.Context(), page); err != nil {
			t.Fatal(err)
		}
		if got := uids(); !slices.Equal(got, []string{"0", "1"}) {
			t.Fatalf("kept %q", got)
		}
	}
	page.DropForceDeleted(map[string]bool{"0": true})
	if err := book.Keep(t.Context(), page); err != nil {
		t.Fatal(err)
	}
	if got := uids(); !slices.Equal(got, []string{"1"}) {
		t.Errorf("kept %q", got)
	}
	for i := range MostForceDeleted + 5 {
		page.ForceDeleted = append(page.ForceDeleted, Entry{UID: fmt.Sprint("u", i), FirstSeen: time.Unix(int64(i+10), 0)})
	}
	page.limit()
	if n := len(page.ForceDeleted); n != MostForceDeleted || page.ForceDeleted[n-1].UID != fmt.Sprint("u", n+4) {
		t.Errorf("%d are kept", n)
	}
}
