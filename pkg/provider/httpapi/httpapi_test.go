package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider/endpoints"
)

func TestResponseBeyondTheLimitIsAnErrorAndNotTheEnd(t *testing.T) {
	const limit = 1000
	for length, want := range map[int]error{0: nil, 1: nil, limit - 1: nil, limit: nil, limit + 1: ErrAnswerTooLong,
		5 * limit: ErrAnswerTooLong} {
		body := &boundedBody{ReadCloser: io.NopCloser(strings.NewReader(strings.Repeat("x", length))), left: limit}
		read, err := io.ReadAll(body)
		if !errors.Is(err, want) || len(read) != min(length, limit) {
			t.Errorf("read %d of %d bytes, with error %v", len(read), length, err)
		}
	}
}

type fakeTransport int

func (n fakeTransport) RoundTrip(*http.Request) (*http.Response, error) {
	body := strings.NewReader(strings.Repeat("x", int(n)))
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body)}, nil
}

// A cloud, or an attacker in its place, adds a link to a further page to every page of a list, so that the list never
// ends.
//
// Rule: lists-bounded.
func TestAttackListWithoutEnd(t *testing.T) {
	for name, c := range map[string]struct {
		pageBytes, pages int
	}{
		"many small pages": {10, MaxListPages},
		"large pages":      {16 << 20, MaxListBytes / (16 << 20)},
	} {
		client := Client(fakeTransport(c.pageBytes))
		get := func(ctx context.Context) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://cloud.example", nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Do(r)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			_, err = io.Copy(io.Discard, response.Body)
			return err
		}
		ctx := List(t.Context())
		for page := range c.pages {
			if err := get(ctx); err != nil {
				t.Fatalf("%s: page %d of %d: %v", name, page+1, c.pages, err)
			}
		}
		if err := get(ctx); TooLong(err) != ErrListTooLong {
			t.Errorf("%s: got %v after %d pages, want %v", name, err, c.pages, ErrListTooLong)
		}
		if err := errors.Join(get(List(t.Context())), get(t.Context())); err != nil {
			t.Errorf("%s: another list, or a request that is not part of a list: %v", name, err)
		}
	}
}

// Rule: endpoints-by-flag.
func TestAttackEndpointOnLoopback(t *testing.T) {
	reached := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	t.Cleanup(server.Close)
	get := func(rules endpoints.Rules, address string) error {
		response, err := Client(Transport(rules)).Get(address)
		if err == nil {
			_ = response.Body.Close()
		}
		return err
	}
	port := server.Listener.Addr().String()[len("127.0.0.1:"):]
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::1]", "0.0.0.0"} {
		err := get(endpoints.Rules{}, "http://"+host+":"+port)
		if _, denied := errors.AsType[*endpoints.DeniedError](err); !denied || reached {
			t.Errorf("%s: got %v, reached: %t, want a denied connection", host, err, reached)
		}
	}
	if err := get(endpoints.Rules{}.AllowHosts("127.0.0.1"), server.URL); err != nil || !reached {
		t.Errorf("with a flag that allows the address: got %v, reached: %t", err, reached)
	}
}

// A service with an allowed address answers with a redirect to a forbidden address.
//
// Rule: endpoints-by-flag.
func TestAttackRedirectToMetadataService(t *testing.T) {
	server := httptest.NewServer(http.RedirectHandler("http://169.254.169.254/latest/meta-data", http.StatusFound))
	t.Cleanup(server.Close)
	client := Client(Transport(endpoints.Rules{}.AllowHosts("127.0.0.1")))
	response, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusFound {
		t.Errorf("got status %d, want the redirect itself", response.StatusCode)
	}
	// Even a client that follows redirects does not reach the address.
	client.CheckRedirect = nil
	if response, err = client.Get(server.URL); err == nil {
		_ = response.Body.Close()
	}
	if _, denied := errors.AsType[*endpoints.DeniedError](err); !denied {
		t.Errorf("got %v, want a denied connection", err)
	}
}

func TestHostAndPortAreThoseThatATransportDials(t *testing.T) {
	for text, want := range map[string]string{
		"http://127.0.0.1:3128": "127.0.0.1:3128", "http://proxy": "proxy:80", "https://[::1]": "[::1]:443",
		"socks5://proxy": "proxy:1080",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := hostAndPort(u); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// Rule: next-page-on-own-host.
func TestAttackLinkLeadsElsewhere(t *testing.T) {
	const endpoint = "https://compute.example.com/v2.1/"
	for link, allowed := range map[string]bool{
		"https://compute.example.com/v2.1/servers?marker=a":     true,
		"https://COMPUTE.example.com:443/v2.1/servers?marker=a": true,
		"/v2.1/servers?marker=a":                                true,
		"?marker=a":                                             true,
		"http://compute.example.com/v2.1/servers?marker=secret": false,
		"https://compute.example.com:8443/servers?m=secret":     false,
		"https://attacker.example/servers?m=secret":             false,
		"https://user@compute.example.com/servers?m=secret":     false,
		"//attacker.example/servers?m=secret":                   false,
		"https://compute.example.com.attacker.example/?secret":  false,
		"file:///etc/passwd":                                    false,
		"https://[":                                             false,
	} {
		err := CheckLink(endpoint, link)
		if (err == nil) != allowed || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, allowed: %t", link, err, allowed)
		}
	}
	err := CheckLink(endpoint, "https://attacker.example/servers?m=secret")
	if err == nil || !strings.Contains(err.Error(), `"https://attacker.example/servers"`) {
		t.Errorf("got %v, want an error with the URL", err)
	}
}

func TestRetryAfterAcceptsSecondsAndDates(t *testing.T) {
	at := time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)
	header := func(value string) http.Header { return http.Header{"Retry-After": {value}} }
	for value, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-3": 0, "soon": 0, "99999999": 24 * time.Hour,
		at.Format(http.TimeFormat): 0,
	} {
		if got := RetryAfter(header(value)); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
	byServerClock := header(at.Add(time.Minute).Format(http.TimeFormat))
	byServerClock.Set("Date", at.Format(http.TimeFormat))
	if got := RetryAfter(byServerClock); got != time.Minute {
		t.Errorf("Retry-After is one minute after Date: got %s, want 1m", got)
	}
}
