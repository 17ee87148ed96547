// Package sdkfake puts the fake servers that are generated with Azure's SDK in front of an Azure in memory: a
// transport that clients of the SDK are made with. The published API's own code so reads each path, parameter and
// body that a client sends, and what that code does not know fails; what the request then does is up to package
// fakeazure.
//
// A fake server of the SDK replays answers that were given beforehand, to whoever asks next at the same path. Here
// there is a server for each request, which is asked anew at each page and each check an operation, so that all
// answers are what is true by then and several clients do not get in each other's way.
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

// New returns one for an Azure.
func New(a *fakeazure.Azure) *Transport { return &Transport{azure: a} }

// Do implements policy.Transporter. What comes from no client that has a fake server, such as a request for a token, is
// served as by HTTP.
func (t *Transport) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	if name, _ := r.Context().Value(runtime.CtxAPINameKey{}).(string); name == "" {
		return t.plain(r)
	}
	// A fake server must not see the end of its context: it gives up then, and breaks when its handler comes back.
	s := &served{azure: t.azure, ctx: r.Context(), request: r.Clone(context.WithoutCancel(r.Context()))}
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
		// Azure sends what it makes or changes before it is done with it; the SDK's fakes cannot.
		response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(s.body)), int64(len(s.body))
		response.Header.Set("Content-Type", "application/json")
	}
	return response, nil
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) { return t.Do(r) }

func (t *Transport) plain(r *http.Request) (response *http.Response, err error) {
	in := r.Clone(r.Context())
	in.TLS = &tls.ConnectionState{}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	recorder := httptest.NewRecorder()
	defer func() {
		gone := recover()
		if failure, ok := gone.(error); ok && errors.Is(failure, http.ErrAbortHandler) {
			err = errors.Join(r.Context().Err(), fakeazure.ErrNoAnswer)
		} else if gone != nil {
			panic(gone)
		}
	}()
	t.azure.ServeHTTP(recorder, in)
	response = recorder.Result()
	response.Request = r
	return response, nil
}

// served is one request. The servers that it is for have handlers of its own.
type served struct {
	azure   *fakeazure.Azure
	ctx     context.Context
	request *http.Request // Links in the answer are made of its URL.
	body    []byte        // of an answer that the SDK's fakes give none
}

// answerError is an answer that is an error. It goes through the SDK's servers as this, which would drop its header and
// message.
type answerError struct{ answer fakeazure.Answer }

func (r *answerError) Error() string { return "Azure answers " + r.answer.Code }

// call is one with what the SDK's servers do not read.
func (s *served) call(operation, group string, names ...string) fakeazure.Call {
	query, header := s.request.URL.Query(), s.request.Header
	subscription, _, _ := strings.Cut(strings.TrimPrefix(s.request.URL.Path, "/subscriptions/"), "/")
	return fakeazure.Call{
		Operation: operation, Subscription: subscription, Group: group, Names: names, Version: query.Get("api-version"),
		Authorization: header.Get("Authorization"), ContentType: header.Get("Content-Type"),
		SkipToken: query.Get("$skiptoken"),
	}
}

func (s *served) do(c fakeazure.Call) (fakeazure.Answer, error) {
	out, err := s.azure.Do(s.ctx, c)
	if err == nil && out.Code != "" {
		err = &answerError{answer: out}
	}
	return out, err
}

// decode makes the SDK's answer of Azure's. What the SDK does not know is lost, as it is to who uses the SDK.
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

// asked is Azure's answer as the SDK has it.
func asked[T any](s *served, c fakeazure.Call) (out fakeazure.Answer, typed T, err error) {
	if out, err = s.do(c); err == nil {
		typed, err = decode[T](out)
	}
	return out, typed, err
}
