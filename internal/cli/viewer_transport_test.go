package cli

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestFleetViewSendsOnlyReads(t *testing.T) {
	const ours = "/apis/machinist.dev/v1beta1"
	for request, want := range map[string]bool{
		"GET " + ours + "/machines":                       true,
		"GET " + ours + "/machines?watch=true":            true,
		"GET " + ours + "/namespaces/prod/machines/web-1": true,
		"GET " + ours + "/namespaces/prod/machineclasses": true,
		"GET " + ours:  true,
		"GET /api":     true,
		"GET /api/v1":  true,
		"GET /apis":    true,
		"GET /version": true,
		"GET /api/v1/namespaces/prod/events?fieldSelector=involvedObject.uid=1":           true,
		"GET /apis/coordination.k8s.io/v1/namespaces/machinist-system/leases/a":           true,
		"GET /api/v1/namespaces/machinist-system/configmaps/machinist-orphans":            true,
		"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews":                     true,
		"POST " + ours + "/namespaces/prod/machinedeployments?dryRun=All":                 true,
		"PATCH " + ours + "/namespaces/prod/machinedeployments/web?dryRun=All&force=true": true,

		"GET /api/v1/secrets":                                     false,
		"GET /api/v1/namespaces/prod/secrets":                     false,
		"GET /api/v1/namespaces/prod/secrets/cloud":               false,
		"GET /api/v1/watch/namespaces/prod/secrets":               false,
		"GET /api/v1/namespaces/prod/configmaps":                  false,
		"GET /api/v1/namespaces/prod/configmaps/other":            false,
		"GET /api/v1/nodes":                                       false,
		"GET /api/v1/namespaces/prod/pods/web/exec":               false,
		"GET /api/v1/nodes/a/proxy/logs":                          false,
		"GET /apis/coordination.k8s.io/v1/namespaces/prod/leases": false,
		"GET /metrics": false,
		"GET /logs/":   false,
		"POST " + ours + "/namespaces/prod/machinedeployments":                                 false,
		"POST " + ours + "/namespaces/prod/machinedeployments?dryRun=":                         false,
		"POST " + ours + "/namespaces/prod/machinedeployments?dryRun=All&dryRun=":              false,
		"POST " + ours + "/namespaces/prod/machines?dryRun=All":                                false,
		"POST " + ours + "/namespaces/prod/machinedeployments/web/scale?dryRun=All":            false,
		"PATCH " + ours + "/namespaces/prod/machinedeployments/web":                            false,
		"PATCH " + ours + "/namespaces/prod/machinedeployments/web/status?dryRun=All":          false,
		"PUT " + ours + "/namespaces/prod/machinedeployments/web?dryRun=All":                   false,
		"DELETE " + ours + "/namespaces/prod/machines/web-1":                                   false,
		"DELETE " + ours + "/namespaces/prod/machines?dryRun=All":                              false,
		"POST /apis/authorization.k8s.io/v1/subjectaccessreviews":                              false,
		"POST /api/v1/namespaces/prod/serviceaccounts/default/token":                           false,
		"POST /apis/authentication.k8s.io/v1/selfsubjectreviews":                               false,
		"GET /apis/evil.example/v1/namespaces/prod/machines/apis/machinist.dev/v1beta1/x?y":    false,
		"GET /apis/machinist.dev.evil.example/v1beta1/machines":                                false,
		"GET " + ours + "/namespaces/prod/machines/web-1/secrets/x":                            false,
		"GET /api/v1/namespaces/prod/secrets/..%2f..%2f..%2fapis%2fmachinist.dev":              false,
		"POST /apis/authorization.k8s.io/v1/namespaces/prod/localsubjectaccessreviews":         false,
		"GET /apis/machinist.dev/v1beta1/namespaces/prod/machines/../../../../../api/v1/nodes": false,
	} {
		for prefix, host := range map[string]string{"": "https://cluster", "/k8s/clusters/c-1": "https://proxy/k8s/clusters/c-1"} {
			sent := false
			transport := newViewerTransport(host, time.Now).wrap(transport(func(*http.Request) (*http.Response, error) {
				sent = true
				return &http.Response{StatusCode: http.StatusOK}, nil
			}))
			method, path, _ := strings.Cut(request, " ")
			_, err := transport.RoundTrip(httptest.NewRequest(method, prefix+path, nil))
			if sent != want || (err == nil) != want {
				t.Errorf("%s with prefix %q: sent is %v, want %v", request, prefix, sent, want)
			}
		}
	}
}

func TestFleetViewDetectsOutage(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	answer, failure := http.StatusOK, error(nil)
	v := newViewerTransport("https://cluster", func() time.Time { return now })
	wrapped := v.wrap(transport(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: answer}, failure
	}))
	list := func() {
		_, _ = wrapped.RoundTrip(httptest.NewRequest(http.MethodGet, "/apis/machinist.dev/v1beta1/machines", nil))
	}
	list()
	if since, _ := v.outage(); !since.IsZero() || len(v.deniedNow()) > 0 {
		t.Error("a cluster that answers is reported as lost or as denying requests")
	}
	failure = errors.New("connection refused")
	list()
	now = now.Add(time.Minute)
	list()
	if since, why := v.outage(); !since.Equal(now.Add(-time.Minute)) || why != "connection refused" {
		t.Errorf("lost since %s: %s", since, why)
	}
	failure, answer = nil, http.StatusForbidden
	list()
	if since, _ := v.outage(); !since.IsZero() || len(v.deniedNow()) != 1 {
		t.Errorf("lost since %s, denied %v", since, v.deniedNow())
	}
	answer = http.StatusOK
	list()
	if denied := v.deniedNow(); len(denied) > 0 {
		t.Errorf("still denied: %v", denied)
	}
}
