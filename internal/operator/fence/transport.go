package fence

import (
	"net/http"
)

// Transport returns a transport that asks the fence immediately before every request that may change something (any
// method but GET, HEAD and OPTIONS), retries of the client included. A client made with it cannot forget the fence.
func Transport(next http.RoundTripper, f *Fence) http.RoundTripper {
	return transport{next: next, fence: f}
}

type transport struct {
	next  http.RoundTripper
	fence *Fence
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return t.next.RoundTrip(request)
	}
	if err := t.fence.Check(); err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, err
	}
	return t.next.RoundTrip(request)
}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
