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
// reserves the domain, so requests cannot reach any server.
const placeholderHost = "kubeconfig.invalid"

func placeholderConfig() *rest.Config { return &rest.Config{Host: "https://" + placeholderHost} }

// toServer returns a transport that redirects requests. If the URL of a request contains placeholderHost, the transport
// sends the request to the server of the given configuration.
func toServer(next http.RoundTripper, config *rest.Config) http.RoundTripper {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return next // Unreachable code: next was created from this address.
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

func (e *noKubeconfigError) forProbes() string {
	if errors.Is(e.cause, fs.ErrNotExist) {
		return "the file " + e.path + " does not exist yet"
	}
	return "the file " + e.path + " cannot be used as a kubeconfig"
}

func missingKubeconfig(err error) error {
	if missing, ok := errors.AsType[*noKubeconfigError](err); ok {
		return missing
	}
	return nil
}
