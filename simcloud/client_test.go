package simcloud_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"machinist.dev/machinist/simcloud"
)

func clientOf(t *testing.T, handler http.HandlerFunc) *simcloud.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client, err := simcloud.New(simcloud.Config{Endpoint: server.URL, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestErrorsOfAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		status     int
		body       string
		retryAfter string
		code       simcloud.ErrorCode
		wait       time.Duration
	}{
		"answer of the cloud": {429, `{"code":"Throttled","message":"slow down","retryAfter":"250ms"}`, "1",
			simcloud.CodeThrottled, 250 * time.Millisecond},
		"header only": {429, `{"code":"Throttled","message":"slow down"}`, "7", simcloud.CodeThrottled,
			7 * time.Second},
		"code takes precedence over status": {503, `{"code":"InsufficientCapacity","message":"full"}`, "",
			simcloud.CodeInsufficientCapacity, 0},
		"page of a proxy":               {502, `<html>bad gateway</html>`, "", simcloud.CodeUnavailable, 0},
		"404 of another server":         {404, `404 page not found`, "", simcloud.CodeInternalError, 0},
		"404 of the cloud":              {404, `{"code":"NotFound","message":"gone"}`, "", simcloud.CodeNotFound, 0},
		"unknown code":                  {403, `{"code":"Weird"}`, "", simcloud.CodeForbidden, 0},
		"empty body":                    {401, ``, "", simcloud.CodeUnauthorized, 0},
		"overflowing Retry-After":       {429, ``, "9223372036854775807", simcloud.CodeThrottled, 0},
		"Retry-After is not a number":   {503, ``, "Wed, 21 Oct 2015 07:28:00 GMT", simcloud.CodeUnavailable, 0},
		"redirects are not followed":    {307, ``, "", simcloud.CodeInternalError, 0},
		"body of another JSON type":     {500, `[]`, "", simcloud.CodeInternalError, 0},
		"other client error":            {418, `I am a teapot`, "", simcloud.CodeInvalidParameter, 0},
		"negative retryAfter in body":   {429, `{"code":"Throttled","retryAfter":"-5s"}`, "", simcloud.CodeThrottled, 0},
		"retryAfter that is not a time": {429, `{"code":"Throttled","retryAfter":"soon"}`, "", simcloud.CodeThrottled, 0},
	} {
		t.Run(name, func(t *testing.T) {
			client := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", "/elsewhere")
				if test.retryAfter != "" {
					w.Header().Set("Retry-After", test.retryAfter)
				}
				w.WriteHeader(test.status)
				io.WriteString(w, test.body)
			})
			_, err := client.GetInstance(t.Context(), "i-1")
			e, ok := errors.AsType[*simcloud.Error](err)
			if !ok || e.Code != test.code || e.RetryAfter != test.wait {
				t.Fatalf("got %#v, expected %s after %s", err, test.code, test.wait)
			}
			if strings.Contains(err.Error(), "html") || strings.Contains(err.Error(), "teapot") {
				t.Errorf("the error contains the body of another server: %v", err)
			}
		})
	}
}

func TestUnusableAnswerIsConnectionError(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"dropped":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"not JSON": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") },
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "{")
		},
		"endless": func(w http.ResponseWriter, r *http.Request) {
			block := []byte(strings.Repeat(" ", 1<<20))
			for r.Context().Err() == nil {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := clientOf(t, handler).CreateInstance(t.Context(), simcloud.CreateInstanceRequest{})
			if e, ok := errors.AsType[*simcloud.ConnectionError](err); !ok || e.Operation != simcloud.OperationCreateInstance {
				t.Fatalf("got %#v", err)
			}
		})
	}

	t.Run("refused", func(t *testing.T) {
		server := httptest.NewServer(nil)
		server.Close()
		client, err := simcloud.New(simcloud.Config{Endpoint: server.URL, Token: "secret"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.GetInstance(t.Context(), "i-1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got %v", err)
		}
	})

	t.Run("deadline", func(t *testing.T) {
		client := clientOf(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := client.GetInstance(ctx, "i-1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestIDCannotReachAnotherEndpoint(t *testing.T) {
	var path string
	client := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.EscapedPath()
		io.WriteString(w, "{}")
	})
	for id, want := range map[string]string{
		"i-0123456789abcdef0": "/v1/instances/i-0123456789abcdef0",
		"../regions":          "/v1/instances/..%2Fregions",
		"a/b?x=y#z":           "/v1/instances/a%2Fb%3Fx=y%23z",
		"":                    "",
		"..":                  "",
		".":                   "",
	} {
		path = ""
		_, err := client.GetInstance(t.Context(), id)
		if path != want {
			t.Errorf("ID %q reached %q, expected %q", id, path, want)
		}
		if want == "" && simcloud.CodeOf(err) != simcloud.CodeInvalidParameter {
			t.Errorf("ID %q: %v", id, err)
		}
	}
}

func TestInvalidConfigIsRefused(t *testing.T) {
	for name, cfg := range map[string]simcloud.Config{
		"no endpoint":      {Token: "t"},
		"no token":         {Endpoint: "http://127.0.0.1"},
		"no scheme":        {Endpoint: "127.0.0.1:80", Token: "t"},
		"other scheme":     {Endpoint: "file:///etc/passwd", Token: "t"},
		"user in endpoint": {Endpoint: "http://a:b@127.0.0.1", Token: "t"},
	} {
		if _, err := simcloud.New(cfg); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
