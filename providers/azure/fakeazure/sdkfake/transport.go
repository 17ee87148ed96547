// Package sdkfake is a transport that connects clients of Azure's SDK to a fake Azure. The transport uses the fake
// servers that are generated with the SDK. The parser of the fake servers reads each path, parameter and body, and
// refuses unknown parameters and fields. Package fakeazure executes the requests.
//
// A fake server of the SDK replays prepared responses to the next request with the same path. So the transport creates
// a new server for each request, page and poll. All responses show the current state, and clients do not affect each
// other.
package sdkfake

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/fake/server"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"machinist.dev/machinist/providers/azure/fakeazure"
)

// Transport is a policy.Transporter and an http.RoundTripper. It is safe for concurrent use.
type Transport struct{ azure *fakeazure.Azure }

// New returns a transport for a fake Azure.
func New(a *fakeazure.Azure) *Transport { return &Transport{azure: a} }

// Do implements policy.Transporter. Requests without a fake server, such as those for tokens, are handled by ServeHTTP
// in memory.
func (t *Transport) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	if name, _ := r.Context().Value(runtime.CtxAPINameKey{}).(string); name == "" {
		return t.serveHTTP(r)
	}
	// If the context of a fake server ended, the server would return early and fail when its handler returns later.
	s := &handler{azure: t.azure, ctx: r.Context(), request: r.Clone(context.WithoutCancel(r.Context()))}
	s.request.URL.Path = server.SanitizePagerPollerPath(r.URL.Path)
	servers := s.compute()
	if strings.Contains(r.URL.Path, "/Microsoft.Network/") {
		servers = s.network()
	}
	response, err := servers.Do(s.request)
	if refused, ok := errors.AsType[*answerError](err); ok {
		recorder := httptest.NewRecorder()
		refused.answer.Write(recorder)
		response, err = recorder.Result(), nil
		response.Request = r
	}
	if err != nil {
		return nil, err
	}
	if s.body != nil {
		// Azure sends the resource before the operation ends, which the SDK's fake servers cannot do.
		response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(s.body)), int64(len(s.body))
		response.Header.Set("Content-Type", "application/json")
	}
	return response, nil
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) { return t.Do(r) }

func (t *Transport) serveHTTP(r *http.Request) (response *http.Response, err error) {
	in := r.Clone(r.Context())
	in.TLS = &tls.ConnectionState{}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	recorder := httptest.NewRecorder()
	defer func() {
		recovered := recover()
		if failure, ok := recovered.(error); ok && errors.Is(failure, http.ErrAbortHandler) {
			err = errors.Join(r.Context().Err(), fakeazure.ErrNoAnswer)
		} else if recovered != nil {
			panic(recovered)
		}
	}()
	t.azure.ServeHTTP(recorder, in)
	response = recorder.Result()
	response.Request = r
	return response, nil
}

type handler struct {
	azure   *fakeazure.Azure
	ctx     context.Context
	request *http.Request // request of the client, whose URL is the base of links in the response
	body    []byte        // body of a response that the SDK's fake servers leave empty
}

// answerError is an error response of Azure. Handlers return it as a Go error, because the SDK's fake servers would
// drop the header and the message of the response.
type answerError struct{ answer fakeazure.Answer }

func (r *answerError) Error() string { return "Azure returned " + r.answer.Code }

// call reads the headers and the query itself, because the SDK's fake servers do not parse them.
func (s *handler) call(operation, group string, names ...string) fakeazure.Call {
	query, header := s.request.URL.Query(), s.request.Header
	subscription, _, _ := strings.Cut(strings.TrimPrefix(s.request.URL.Path, "/subscriptions/"), "/")
	return fakeazure.Call{
		Operation: operation, Subscription: subscription, Group: group, Names: names, Version: query.Get("api-version"),
		Authorization: header.Get("Authorization"), ContentType: header.Get("Content-Type"),
		SkipToken: query.Get("$skiptoken"),
	}
}

func (s *handler) do(c fakeazure.Call) (fakeazure.Answer, error) {
	out, err := s.azure.Do(s.ctx, c)
	if err == nil && out.Code != "" {
		err = &answerError{answer: out}
	}
	return out, err
}

// decode converts a response into the SDK's type. As for every client, properties that the SDK does not know are lost.
func decode[T any](out fakeazure.Answer) (typed T, err error) {
	if out.Body == nil {
		return typed, nil
	}
	raw, err := json.Marshal(out.Body)
	if err == nil {
		err = json.Unmarshal(raw, &typed)
	}
	return typed, err
}

// execute performs a call. It returns the response, and the body of the response decoded into the SDK's type.
func execute[T any](s *handler, c fakeazure.Call) (out fakeazure.Answer, typed T, err error) {
	if out, err = s.do(c); err == nil {
		typed, err = decode[T](out)
	}
	return out, typed, err
}
