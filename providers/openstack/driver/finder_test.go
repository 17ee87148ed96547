package driver

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
)

const (
	idOfNet   = "00000000-0000-4000-8000-00000000000a"
	idOfImage = "00000000-0000-4000-8000-00000000000b"
)

// TestFindDescribesServers tests what Find reports about servers that differ in one property from a plain server.
func TestFindDescribesServers(t *testing.T) {
	const id = "00000000-0000-4000-8000-000000000001"
	for name, c := range map[string]struct {
		change       func(server map[string]any)
		notAdoptable bool
		otherSystem  string
		differences  []string
		network      string // of the server's port
	}{
		"plain":    {},
		"unmarked": {change: func(s map[string]any) { s["metadata"] = map[string]string{} }, notAdoptable: true},
		"of Gardener": {change: func(s map[string]any) {
			s["metadata"] = map[string]string{"kubernetes.io-cluster-a": "1", metaAdoptable: "true"}
		}, otherSystem: "Gardener"},
		"of the Cluster API": {change: func(s map[string]any) { s["tags"] = []string{"cluster-api-provider-openstack"} },
			otherSystem: "Cluster API"},
		"another flavor": {change: func(s map[string]any) { s["flavor"] = map[string]any{"original_name": "large"} },
			differences: []string{"flavor"}},
		"boots from a volume": {change: func(s map[string]any) { s["image"] = "" }, differences: []string{"image"}},
		"another network":     {network: "00000000-0000-4000-8000-00000000000c", differences: []string{"ports"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := map[string]any{"id": id, "name": "web-1", "status": "ACTIVE",
				"flavor": map[string]any{"original_name": "small"}, "image": map[string]any{"id": idOfImage},
				"metadata":  map[string]string{metaAdoptable: "true"},
				"addresses": map[string]any{"net": []any{map[string]any{"addr": "10.0.0.5"}}}}
			network := idOfNet
			if c.network != "" {
				network = c.network
			}
			if c.change != nil {
				c.change(server)
			}
			s := newFakeAPI(t)
			s.Config.Handler = answering(s.URL, map[string]any{
				"/compute/flavors/detail":       map[string]any{"flavors": []any{map[string]any{"id": "1", "name": "small"}}},
				"/image/v2/images/" + idOfImage: map[string]any{"id": idOfImage, "status": "active"},
				"/network/v2.0/networks":        map[string]any{"networks": []any{map[string]any{"id": idOfNet, "name": "net"}}},
				"/compute/servers/detail":       map[string]any{"servers": []any{server, server}},
				"/network/v2.0/ports": map[string]any{"ports": []any{map[string]any{"id": "p", "device_id": id,
					"network_id": network}}},
			})
			d, credentials := s.driver(t)
			spec := `{"apiVersion":"openstack.machinist.dev/v1beta1","kind":"OpenStackMachine","flavor":"small",` +
				`"image":{"id":"` + idOfImage + `"},"ports":[{"network":"net"}]}`
			all, err := d.Find(context.Background(), provider.FindRequest{Class: provider.Class{Spec: []byte(spec),
				Credentials: credentials}})
			if err != nil || len(all) != 1 {
				t.Fatalf("Find returns %d servers and the error %v", len(all), err)
			}
			one := all[0]
			if one.Name != "web-1" || !slices.Contains(one.Networks, "net") || !slices.Contains(one.Networks, network) {
				t.Errorf("Find returns %+v", one)
			}
			if (one.NotAdoptable != "") != c.notAdoptable ||
				c.notAdoptable && !strings.Contains(one.NotAdoptable, "--property machinist-adoptable=true "+id) {
				t.Errorf("NotAdoptable is %q", one.NotAdoptable)
			}
			if (one.OtherSystem != "") != (c.otherSystem != "") || !strings.Contains(one.OtherSystem, c.otherSystem) {
				t.Errorf("OtherSystem is %q, want it to contain %q", one.OtherSystem, c.otherSystem)
			}
			var fields []string
			for _, difference := range one.Differences {
				fields = append(fields, difference.Field)
			}
			if !slices.Equal(fields, c.differences) {
				t.Errorf("the differences are %+v, want %v", one.Differences, c.differences)
			}
		})
	}
}

// answering returns a handler that signs in every client and answers each path of OpenStack's services with JSON.
func answering(url string, answers map[string]any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := answers[r.URL.Path]
		if r.URL.Path == "/identity/v3/auth/tokens" {
			w.Header().Set("X-Subject-Token", "t")
			w.WriteHeader(http.StatusCreated)
			var catalog []any
			for _, kind := range []string{"compute", "network", "image"} {
				catalog = append(catalog, map[string]any{"id": kind, "type": kind, "endpoints": []any{map[string]any{"id": kind,
					"interface": "public", "region": "one", "region_id": "one", "url": url + "/" + kind}}})
			}
			answer = map[string]any{"token": map[string]any{"expires_at": "2126-01-01T00:00:00.000000Z", "catalog": catalog}}
		}
		if answer == nil {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		writeJSON(w, answer)
	})
}
