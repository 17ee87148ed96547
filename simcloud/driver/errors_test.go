package driver_test

import (
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/driver"
)

func TestCodesOfTheCloudAreTranslated(t *testing.T) {
	s := newSim(t)
	for code, want := range map[simcloud.ErrorCode]provider.Code{
		simcloud.CodeInvalidParameter:            provider.InvalidArgument,
		simcloud.CodeUnauthorized:                provider.Unauthenticated,
		simcloud.CodeForbidden:                   provider.PermissionDenied,
		simcloud.CodeNotFound:                    provider.NotFound,
		simcloud.CodeConflict:                    provider.Aborted,
		simcloud.CodeIdempotentParameterMismatch: provider.AlreadyExists,
		simcloud.CodeUnsupportedOperation:        provider.FailedPrecondition,
		simcloud.CodeQuotaExceeded:               provider.ResourceExhausted,
		simcloud.CodeInsufficientCapacity:        provider.ResourceExhausted,
		simcloud.CodeThrottled:                   provider.Throttled,
		simcloud.CodeInternalError:               provider.Internal,
		simcloud.CodeUnavailable:                 provider.Unavailable,
	} {
		t.Run(string(code), func(t *testing.T) {
			s.fault(simcloud.FaultRule{Operation: simcloud.OperationCreateInstance, Count: 1, Effect: simcloud.FaultEffect{
				Error: code, Message: "message of the cloud", RetryAfter: simcloud.Duration(1500 * time.Millisecond),
			}})
			_, err := s.driver.Create(t.Context(), createRequest("a"))
			wantCode(t, err, want)
			if got := provider.RetryAfter(err); got != 1500*time.Millisecond {
				t.Errorf("retry after %s", got)
			}
			if strings.Contains(err.Error(), "message of the cloud") {
				t.Errorf("the error contains the message of the cloud: %v", err)
			}
			if simcloud.CodeOf(err) != code {
				t.Errorf("the cause of the error is missing: %v", err)
			}
		})
	}
}

func TestCodesOfMissingAnswers(t *testing.T) {
	s := newSim(t)
	s.fault(simcloud.FaultRule{Operation: simcloud.OperationCreateInstance,
		Effect: simcloud.FaultEffect{DropConnection: true}})
	_, err := s.driver.Create(t.Context(), createRequest("a"))
	wantCode(t, err, provider.Unavailable)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	closed := newDriver(t, driver.Options{Endpoints: []string{"http://" + listener.Addr().String()}})
	must(t, listener.Close())
	_, err = closed.Create(t.Context(), createRequest("a"))
	wantCode(t, err, provider.Unavailable)
	if !strings.Contains(err.Error(), listener.Addr().String()) {
		t.Errorf("the error does not contain the address: %v", err)
	}

	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	d := newDriver(t, driver.Options{Endpoints: []string{silent.URL}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = d.Create(ctx, createRequest("a"))
	wantCode(t, err, provider.DeadlineExceeded)
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	_, err = d.Create(ctx, createRequest("a"))
	wantCode(t, err, provider.Canceled)
}

// The driver's errors must not contain the request, even if the cloud repeats it in an answer.
func TestErrorsContainNoSecrets(t *testing.T) {
	const userData = "bootstrap-token-abcdef"
	for name, answer := range map[string]func(w http.ResponseWriter, echo string){
		"in an error": func(w http.ResponseWriter, echo string) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"code":"InvalidParameter","message":"type: `+echo+`"}`)
		},
		"in a page": func(w http.ResponseWriter, echo string) {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, echo)
		},
		"in a success": func(w http.ResponseWriter, echo string) {
			_, _ = io.WriteString(w, `{"launchTime":"`+echo+`"}`)
		},
		"in a redirect": func(w http.ResponseWriter, echo string) {
			w.Header().Set("Location", "http://127.0.0.1:1/"+echo)
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
	} {
		t.Run(name, func(t *testing.T) {
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				answer(w, strings.NewReplacer(`"`, `'`, "\n", " ").Replace(r.Header.Get("Authorization")+" "+string(body)))
			}))
			defer web.Close()
			d := newDriver(t, driver.Options{Endpoints: []string{web.URL}})
			req := createRequest("a")
			req.UserData = provider.NewSecret([]byte(userData))
			_, err := d.Create(t.Context(), req)
			if err == nil {
				t.Fatal("no error")
			}
			for _, secret := range []string{token, userData, base64.StdEncoding.EncodeToString([]byte(userData))} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error contains %q: %v", secret, err)
				}
			}
		})
	}
}

func TestConnectionsAreReused(t *testing.T) {
	var connections atomic.Int32
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{}`)
	}))
	web.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	web.Start()
	defer web.Close()
	d := newDriver(t, driver.Options{Endpoints: []string{web.URL}})
	for range 10 {
		if _, err := d.List(t.Context(), provider.ListRequest{Class: class(), ClusterID: cluster}); err != nil {
			t.Fatal(err)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections for 10 sequential calls", n)
	}
}
