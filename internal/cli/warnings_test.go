package cli

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

func TestWarningsAreCollectedPerRequest(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Warning", `299 - "spec.a: one"`)
		w.Header().Add("Warning", `299 - "spec.b: two"`)
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	d, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL,
		WarningHandlerWithContext: warningCollector{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, warnings := collectWarnings(t.Context())
	for _, request := range []*rest.Request{d.RESTClient().Get().AbsPath("/a"), d.RESTClient().Get().AbsPath("/b")} {
		if err := request.Do(ctx).Error(); err != nil {
			t.Fatal(err)
		}
		ctx = t.Context() // The warnings of the second request are not collected.
	}
	if want := []string{"spec.a: one", "spec.b: two"}; !slices.Equal(*warnings, want) {
		t.Errorf("warnings %q, want %q", *warnings, want)
	}
}
