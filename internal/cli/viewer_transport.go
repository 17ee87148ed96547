package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/health/orphans/ledger"
)

// viewerTransport rejects all requests that the fleet view does not need. viewerTransport permits reads of
// Machinist's objects, events, leases and the ConfigMap of orphans. viewerTransport also permits reviews of the
// user's own permissions and dry runs of deployments. viewerTransport rejects requests for Secrets.
type viewerTransport struct {
	prefix string
	now    func() time.Time

	mu sync.Mutex
	// lostSince is the time of the first request without a response. lostSince is zero while the server answers.
	// lostWhy is the error.
	lostSince time.Time
	lostWhy   string
	// deniedResources maps a resource to true if the API server rejected its latest list or watch request.
	deniedResources map[string]bool
}

func newViewerTransport(host string, now func() time.Time) *viewerTransport {
	t := &viewerTransport{now: now, deniedResources: map[string]bool{}}
	if at, err := url.Parse(host); err == nil {
		t.prefix = strings.TrimSuffix(at.Path, "/")
	}
	return t
}

// wrap returns a transport that checks each request. All transports share the state of t.
func (t *viewerTransport) wrap(next http.RoundTripper) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) { return t.roundTrip(next, r) })
}

// roundTrip checks and sends a request. roundTrip records whether the server has answered.
func (t *viewerTransport) roundTrip(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	target := parseResource(strings.TrimPrefix(r.URL.Path, t.prefix))
	if !target.isPermitted(r) {
		return nil, fmt.Errorf("machinist ui only reads and does not send %s %s", r.Method, r.URL.Path)
	}
	response, err := next.RoundTrip(r)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.lostSince, t.lostWhy = time.Time{}, ""
		if r.Method == http.MethodGet && target.group == v1beta1.GroupVersion.Group && target.name == "" {
			t.deniedResources[target.resource] = response.StatusCode == http.StatusForbidden ||
				response.StatusCode == http.StatusUnauthorized
		}
	case errors.Is(r.Context().Err(), context.Canceled):
		// The client canceled the request. A canceled request, unlike a timeout, does not mean that the server is down.
	case t.lostSince.IsZero():
		t.lostSince, t.lostWhy = t.now(), err.Error()
	}
	return response, err
}

// outage returns when and why the server stopped answering. The time is zero while the server answers.
func (t *viewerTransport) outage() (time.Time, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lostSince, t.lostWhy
}

func (t *viewerTransport) deniedNow() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []string
	for resource, denied := range t.deniedResources {
		if denied {
			all = append(all, resource)
		}
	}
	slices.Sort(all)
	return all
}

type resource struct {
	// These fields are the parts of the path. A field is empty if the path does not contain this part.
	group, version, resource, name, subresource string
	// isUnknown is true if the path does not belong to the Kubernetes API.
	isUnknown bool
}

// parseResource parses paths such as /apis/machinist.dev/v1beta1/namespaces/prod/machines/web-1.
func parseResource(path string) (r resource) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" || path == "/version":
		parts = parts[1:]
	case parts[0] == "apis":
		if parts = parts[1:]; len(parts) > 0 {
			r.group, parts = parts[0], parts[1:]
		}
	default:
		return resource{isUnknown: true}
	}
	if len(parts) > 0 {
		r.version, parts = parts[0], parts[1:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	for i, part := range []*string{&r.resource, &r.name, &r.subresource} {
		if i < len(parts) {
			*part = parts[i]
		}
	}
	r.isUnknown = len(parts) > 3
	return r
}

// isPermitted reports whether the fleet view may send the request.
func (a resource) isPermitted(r *http.Request) bool {
	if a.isUnknown || a.subresource != "" {
		return false
	}
	dryRun := slices.Equal(r.URL.Query()["dryRun"], []string{"All"})
	ours := a.group == v1beta1.GroupVersion.Group
	switch r.Method {
	case http.MethodGet:
		switch {
		case a.resource == "":
			return true
		case ours, a.group == "" && a.resource == "events":
			return true
		case a.group == "coordination.k8s.io" && a.resource == "leases":
			return a.name != ""
		}
		return a.group == "" && a.resource == "configmaps" && a.name == ledger.Name
	case http.MethodPost:
		return a.group == "authorization.k8s.io" && a.resource == "selfsubjectaccessreviews" ||
			ours && a.resource == "machinedeployments" && a.name == "" && dryRun
	case http.MethodPatch:
		return ours && a.resource == "machinedeployments" && a.name != "" && dryRun
	}
	return false
}
