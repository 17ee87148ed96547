package driver_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/vsphere/driver"
	"machinist.dev/machinist/providers/vsphere/machine/sample"
)

// All calls share one session. When the session ends, the next call opens exactly one other session and succeeds.
func TestEndedSessionIsReplacedOnce(t *testing.T) {
	c := newCloud(t)
	d, err := c.newDriver()
	if err != nil {
		t.Fatal(err)
	}
	request := provider.ListRequest{Class: provider.Class{Spec: sample.Spec(), Credentials: credentials()}, ClusterID: "a"}
	for round := range 3 {
		before := c.Logins()
		failed := make(chan error, 8)
		for range cap(failed) {
			go func() {
				_, err := d.List(t.Context(), request)
				failed <- err
			}()
		}
		for range cap(failed) {
			if err := <-failed; err != nil {
				t.Errorf("List in round %d: %v", round, err)
			}
		}
		if n := c.Logins() - before; n != 1 {
			t.Errorf("round %d: %d sessions were opened, want 1", round, n)
		}
		if err := c.EndSessions(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// An address that serves something else must not look like a vCenter.
func TestOtherServersAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    provider.Code
	}{
		"a web page": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html></html>")) },
			provider.Unavailable},
		"a redirect":  {http.RedirectHandler("https://other.example", http.StatusFound).ServeHTTP, provider.Internal},
		"a not found": {http.NotFound, provider.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(test.handler)
			t.Cleanup(server.Close)
			d, err := driver.New(driver.Options{VCenters: map[string]string{sample.VCenter: server.URL}, PlainHTTP: true,
				Transport: server.Client().Transport})
			if err != nil {
				t.Fatal(err)
			}
			_, err = d.List(t.Context(), provider.ListRequest{Class: provider.Class{Spec: sample.Spec(),
				Credentials: credentials()}, ClusterID: "a"})
			if provider.CodeOf(err) != test.want || strings.Contains(err.Error(), password) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}
