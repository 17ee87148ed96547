package driver_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"machinist.dev/machinist/pkg/provider"
)

// interceptor calls do immediately before it sends the first update of a virtual machine.
type interceptor struct {
	http.RoundTripper
	done atomic.Bool
	do   func()
}

func (m *interceptor) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch && strings.Contains(strings.ToLower(r.URL.Path), "/virtualmachines/") &&
		m.done.CompareAndSwap(false, true) {
		m.do()
	}
	return m.RoundTripper.RoundTrip(r)
}

// Another owner can adopt a machine between the read and the change.
func TestImporterKeepsTagsOfNewOwner(t *testing.T) {
	r := request("a", class())
	for name, change := range map[string]func(provider.Importer, string) error{
		"Release": func(d provider.Importer, id string) error {
			return d.Release(t.Context(), provider.ReleaseRequest{Machine: r.Machine, Class: r.Class, ClusterID: cluster,
				ProviderID: id, Source: provider.SourceGardener})
		},
		"Disown": func(d provider.Importer, id string) error {
			return d.Disown(t.Context(), provider.DisownRequest{Machine: r.Machine, Class: r.Class, ClusterID: cluster,
				ProviderID: id})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, nil)
			id, _, err := c.launchLegacy(t.Context(), legacyOf(provider.SourceGardener, "{}"), "old-1", "")
			c.must(err)
			_, err = c.driver().Adopt(t.Context(), provider.AdoptRequest{Machine: r.Machine, Class: r.Class, ClusterID: cluster,
				ProviderID: id, Tags: r.Tags})
			c.must(err)
			before := c.transport
			others := map[string]string{"kubernetes.io-role-node": "1", provider.TagCluster: "another",
				provider.TagMachineUID: "another", provider.TagMachine: "default/another"}
			c.transport = &interceptor{RoundTripper: before, do: func() {
				c.must(c.call(t.Context(), http.MethodPatch, strings.TrimPrefix(id, "azure://")+"?api-version=2025-04-01",
					map[string]any{"tags": others}))
			}}
			if err := change(c.driver(), id); provider.CodeOf(err) != provider.FailedPrecondition {
				t.Errorf("got %v, want FailedPrecondition", err)
			}
			c.transport = before
			now, err := c.tagsAndOptions(t.Context(), id)
			c.must(err)
			for key, text := range others {
				if now[key] != text {
					t.Errorf("tag %s: got %q, want %q", key, now[key], text)
				}
			}
		})
	}
}
