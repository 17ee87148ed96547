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

// awaitedHost is the server of clients that were made before there was a kubeconfig file to take it from. RFC 2606
// reserves the domain, so that a request to it could reach nobody.
const awaitedHost = "kubeconfig.invalid"

// awaitedConfig is what clients are made from while there is no usable kubeconfig file.
func awaitedConfig() *rest.Config { return &rest.Config{Host: "https://" + awaitedHost} }

// toServer sends the requests of such clients to the server of a configuration.
func toServer(next http.RoundTripper, config *rest.Config) http.RoundTripper {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return next // The configuration was used to make next, so its address can be parsed.
	}
	return redirected{next, server}
}

type redirected struct {
	next   http.RoundTripper
	server *url.URL
}

// RoundTrip implements http.RoundTripper.
func (r redirected) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Host != awaitedHost {
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

// WrappedRoundTripper lets client-go find the transport behind this one.
func (r redirected) WrappedRoundTripper() http.RoundTripper { return r.next }

// noKubeconfigError says that there is no usable kubeconfig file yet.
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

// forProbes is what /readyz may show to anybody.
func (e *noKubeconfigError) forProbes() string {
	if errors.Is(e.cause, fs.ErrNotExist) {
		return "there is no file " + e.path + " yet"
	}
	return "the file " + e.path + " cannot be used as a kubeconfig"
}

// awaited returns the error of a request that was not sent because there is no usable kubeconfig file yet; nil if err
// is another one.
func awaited(err error) error {
	if missing, ok := errors.AsType[*noKubeconfigError](err); ok {
		return missing
	}
	return nil
}
