package driver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"machinist.dev/machinist/pkg/provider"
)

// newServiceClient starts a fake service and returns a client for it. The service returns empty lists, and answers
// every deletion with the given status and body.
func newServiceClient(t *testing.T, status int, body string) *gophercloud.ServiceClient {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method != http.MethodDelete {
			// If a response contained several lists, gophercloud would use an arbitrary one.
			list := path.Base(r.URL.Path)
			if list == "detail" {
				list = path.Base(path.Dir(r.URL.Path))
			}
			_, _ = fmt.Fprintf(w, `{%q: []}`, list)
			return
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return &gophercloud.ServiceClient{ProviderClient: &gophercloud.ProviderClient{}, Endpoint: s.URL + "/"}
}

// Rule: remaining-parts-named.
func TestRemainingVolumesContainCinderMessage(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		volume volumes.Volume
		want   string
	}{
		"with a snapshot": {http.StatusBadRequest,
			`{"badRequest": {"code": 400, "message": "Volume v-1 still has 1 dependent\n snapshots."}}`,
			volumes.Volume{ID: "v-1", Status: "available"},
			"volume v-1 (available): Volume v-1 still has 1 dependent snapshots."},
		"attached": {http.StatusConflict, `{"conflictingRequest": {"code": 409, "message": "Volume is in-use."}}`,
			volumes.Volume{ID: "v-2", Status: "in-use"}, "volume v-2 (in-use): Volume is in-use."},
		"without a reason": {http.StatusConflict, "", volumes.Volume{ID: "v-3", Status: "backing-up"},
			"volume v-3 (backing-up)"},
		"accepted": {http.StatusAccepted, "", volumes.Volume{ID: "v-4", Status: "available"}, "volume v-4 (available)"},
		"being deleted": {http.StatusTeapot, "", volumes.Volume{ID: "v-5", Status: "deleting"},
			"volume v-5 (deleting)"},
	} {
		t.Run(name, func(t *testing.T) {
			all := &clients{volume: newServiceClient(t, c.status, c.body)}
			left, err := all.deleteVolumes(t.Context(), []volumes.Volume{c.volume}, all.newServerLookup())
			if err != nil || !slices.Equal(left, []string{c.want}) {
				t.Errorf("got %q, %v, want %q", left, err, c.want)
			}
		})
	}
	refused := &clients{volume: newServiceClient(t, http.StatusForbidden,
		`{"forbidden": {"message": "Policy doesn't allow it"}}`)}
	_, err := refused.deleteVolumes(t.Context(), []volumes.Volume{{ID: "v-1", Status: "available"}},
		refused.newServerLookup())
	if provider.CodeOf(err) != provider.PermissionDenied {
		t.Errorf("got %v, want %s", err, provider.PermissionDenied)
	}
}

// Rule: remaining-parts-named.
func TestRemainingPortsContainNeutronMessage(t *testing.T) {
	all := &clients{network: newServiceClient(t, http.StatusConflict,
		`{"NeutronError": {"type": "PortInUse", "message": "Port p-1 is currently a parent port."}}`)}
	left, err := all.deletePorts(t.Context(), []ports.Port{{ID: "p-1"}}, all.newServerLookup())
	if want := "port p-1: Port p-1 is currently a parent port."; err != nil || !slices.Equal(left, []string{want}) {
		t.Errorf("got %q, %v, want %q", left, err, want)
	}
}
