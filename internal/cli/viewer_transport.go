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

// viewerTransport lets through what the fleet view needs, and refuses all else, whatever asks for it: it reads
// Machinist's objects, events, leases and the record of orphans, reviews the viewer's own rights, and has a change of a
// deployment tried in a dry run. Nothing reads a Secret.
type viewerTransport struct {
	// prefix is the path before those of the API, of a server behind a proxy.
	prefix string
	now    func() time.Time

	mu sync.Mutex
	// lostSince is since when the server does not answer, zero while it does.
	lostSince time.Time
	lostWhy   string
	// denied are the resources that may not be listed or watched any more.
	denied map[string]bool
}

// newViewerTransport returns the transport to a server.
func newViewerTransport(host string, now func() time.Time) *viewerTransport {
	t := &viewerTransport{now: now, denied: map[string]bool{}}
	if at, err := url.Parse(host); err == nil {
		t.prefix = strings.TrimSuffix(at.Path, "/")
	}
	return t
}

// over puts it before another transport. Several clients, each with connections of its own, share what it knows.
func (t *viewerTransport) over(next http.RoundTripper) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) { return t.roundTrip(next, r) })
}

func (t *viewerTransport) roundTrip(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	asked := parseResource(strings.TrimPrefix(r.URL.Path, t.prefix))
	if !asked.permitted(r) {
		return nil, fmt.Errorf("machinist ui only reads: it does not send %s %s", r.Method, r.URL.Path)
	}
	answer, err := next.RoundTrip(r)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.lostSince, t.lostWhy = time.Time{}, ""
		if r.Method == http.MethodGet && asked.group == v1beta1.GroupVersion.Group && asked.name == "" {
			t.denied[asked.resource] = answer.StatusCode == http.StatusForbidden || answer.StatusCode == http.StatusUnauthorized
		}
	case errors.Is(r.Context().Err(), context.Canceled): // It was given up; one that took too long was not.
	case t.lostSince.IsZero():
		t.lostSince, t.lostWhy = t.now(), err.Error()
	}
	return answer, err
}

// lost says since when the server does not answer.
func (t *viewerTransport) lost() (time.Time, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lostSince, t.lostWhy
}

// deniedNow returns the resources that may not be listed or watched any more, sorted.
func (t *viewerTransport) deniedNow() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []string
	for resource, denied := range t.denied {
		if denied {
			all = append(all, resource)
		}
	}
	slices.Sort(all)
	return all
}

// resource is what a path of the API names.
type resource struct {
	// group and version of the API, resource in it, name of an object, subresource of that; empty where there is none.
	group, version, resource, name, subresource string
	// unknown says that the path is not one of the API's.
	unknown bool
}

// parseResource reads a path such as /apis/machinist.dev/v1beta1/namespaces/prod/machines/web-1.
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
		return resource{unknown: true}
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
	r.unknown = len(parts) > 3
	return r
}

// permitted reports whether the fleet view may send the request.
func (a resource) permitted(r *http.Request) bool {
	if a.unknown || a.subresource != "" {
		return false
	}
	dryRun := slices.Equal(r.URL.Query()["dryRun"], []string{"All"})
	ours := a.group == v1beta1.GroupVersion.Group
	switch r.Method {
	case http.MethodGet:
		switch {
		case a.resource == "": // What the API serves.
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
