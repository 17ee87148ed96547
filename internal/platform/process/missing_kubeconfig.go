package process

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
)

// placeholderHost is the server of clients that were created before there was a usable kubeconfig file. RFC 2606
// reserves the domain, so a request to it cannot reach any server.
const placeholderHost = "kubeconfig.invalid"

// placeholderConfig returns the configuration of clients that are created while there is no usable kubeconfig file.
func placeholderConfig() *rest.Config { return &rest.Config{Host: "https://" + placeholderHost} }

// toServer returns a transport for requests to the placeholder. It sends these requests to the server of a
// configuration instead.
func toServer(next http.RoundTripper, config *rest.Config) http.RoundTripper {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return next // Unreachable: next was created from this address.
	}
	return redirected{next, server}
}

type redirected struct {
	next   http.RoundTripper
	server *url.URL
}

// RoundTrip implements http.RoundTripper.
func (r redirected) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Host != placeholderHost {
		return r.next.RoundTrip(request)
	}
	request = request.Clone(request.Context())
	request.URL.Scheme, request.URL.Host, request.Host = r.server.Scheme, r.server.Host, ""
	if prefix := strings.TrimSuffix(r.server.Path, "/"); prefix != "" {
		path := request.URL.EscapedPath()
		request.URL.Path, request.URL.RawPath = prefix+request.URL.Path, strings.TrimSuffix(r.server.EscapedPath(), "/")+path
	}
	return r.next.RoundTrip(request)
}

// WrappedRoundTripper gives client-go access to the wrapped transport.
func (r redirected) WrappedRoundTripper() http.RoundTripper { return r.next }

// noKubeconfigError is the error of requests while there is no usable kubeconfig file.
type noKubeconfigError struct {
	flag, path string
	cause      error
}

func (e *noKubeconfigError) Error() string {
	if errors.Is(e.cause, fs.ErrNotExist) {
		return fmt.Sprintf("--%s=%s: there is no such file yet", e.flag, e.path)
	}
	return fmt.Sprintf("--%s=%s: the file cannot be used: %v", e.flag, e.path, e.cause)
}

func (e *noKubeconfigError) Unwrap() error { return e.cause }

// forProbes returns the text that /readyz may show to unauthenticated clients.
func (e *noKubeconfigError) forProbes() string {
	if errors.Is(e.cause, fs.ErrNotExist) {
		return "the file " + e.path + " does not exist yet"
	}
	return "the file " + e.path + " cannot be used as a kubeconfig"
}

// missingKubeconfig returns the noKubeconfigError in err, or nil if err has another cause.
func missingKubeconfig(err error) error {
	if missing, ok := errors.AsType[*noKubeconfigError](err); ok {
		return missing
	}
	return nil
}
