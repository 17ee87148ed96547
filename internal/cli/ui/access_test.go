package ui

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestOnlyLoopbackIsServed(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:0": true, "127.8.9.10:80": true, "[::1]:0": true, "localhost:8085": true,
		"0.0.0.0:80": false, ":80": false, "[::]:80": false, "192.168.1.2:80": false,
		"example.com:80": false, "127.0.0.1": false,
		"localhost.example.com:1": false, "[::ffff:127.0.0.1]:80": true, "127.1:80": false, "": false,
	} {
		if got := Loopback(address); got != want {
			t.Errorf("%q is taken for loopback: %v, want %v", address, got, want)
		}
		if want {
			continue
		}
		if s, err := Listen(context.Background(), address, Options{Source: newFake()}); err == nil {
			s.listener.Close()
			t.Errorf("%q is served", address)
		}
	}
}

func TestWhoMayAsk(t *testing.T) {
	b := open(t, newFake())
	host := b.server.listener.Addr().String()
	port := host[strings.LastIndex(host, ":"):]
	for name, test := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"the person":                      {func(*http.Request) {}, http.StatusOK},
		"by the name localhost":           {func(r *http.Request) { r.Host = "localhost" + port }, http.StatusOK},
		"a page of its own":               {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }, http.StatusOK},
		"an address that was typed":       {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") }, http.StatusOK},
		"a form of its own":               {func(r *http.Request) { r.Header.Set("Origin", "http://"+host) }, http.StatusOK},
		"without the cookie":              {func(r *http.Request) { r.Header.Del("Cookie") }, http.StatusForbidden},
		"with another cookie":             {func(r *http.Request) { r.Header.Set("Cookie", b.cookie.Name+"=x") }, http.StatusForbidden},
		"with an empty one":               {func(r *http.Request) { r.Header.Set("Cookie", b.cookie.Name+"=") }, http.StatusForbidden},
		"a page of another site":          {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden},
		"a page of another port":          {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, http.StatusForbidden},
		"another origin":                  {func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, http.StatusForbidden},
		"an origin of another port":       {func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:1") }, http.StatusForbidden},
		"an origin that is hidden":        {func(r *http.Request) { r.Header.Set("Origin", "null") }, http.StatusForbidden},
		"a name that resolves to it":      {func(r *http.Request) { r.Host = "rebound.example" + port }, http.StatusForbidden},
		"such a name with its own origin": {func(r *http.Request) { r.Host = "rebound.example" + port; r.Header.Set("Origin", "http://"+r.Host) }, http.StatusForbidden},
		"its address with another port":   {func(r *http.Request) { r.Host = "127.0.0.1:1" }, http.StatusForbidden},
		"its address without the port":    {func(r *http.Request) { r.Host = "127.0.0.1" }, http.StatusForbidden},
	} {
		for _, path := range []string{"/", "/machines", "/events?x", "/assets/style.css", "/plan"} {
			if path == "/events?x" && test.want == http.StatusOK {
				continue // It goes on; the stream has a test of its own.
			}
			r := b.request("GET", path, "")
			test.change(r)
			answer := b.send(r)
			if answer.Code != test.want {
				t.Errorf("%s, %s: answered with %d, want %d", name, path, answer.Code, test.want)
			}
			if test.want == http.StatusForbidden && strings.Contains(answer.Body.String(), "<") {
				t.Errorf("%s, %s: who is refused gets a page", name, path)
			}
		}
	}
	// Neither does a page of another site change anything by a form, nor any method that is none of ours.
	r := b.request("POST", "/plan", "manifest=x")
	r.Header.Set("Origin", "http://evil.example")
	if code := b.send(r).Code; code != http.StatusForbidden {
		t.Errorf("a form of another site is answered with %d", code)
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		if code := b.send(b.request(method, "/machines", "")).Code; code != http.StatusMethodNotAllowed {
			t.Errorf("%s is answered with %d", method, code)
		}
	}
}

func TestALinkIsExchangedOnce(t *testing.T) {
	s := listen(t, newFake())
	used := 0
	s.options.Used = func(string) { used++ }
	b := &browser{t: t, server: s, handler: s.Handler()}
	link, _ := url.Parse(s.Link())
	at := "/machines?q=a&" + link.RawQuery
	answer := b.send(b.request("GET", at, ""))
	if to := answer.Header().Get("Location"); answer.Code != http.StatusSeeOther || to != "/machines?q=a" {
		t.Errorf("answered with %d to %q, want the address without the token", answer.Code, to)
	}
	cookie := answer.Result().Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Domain != "" ||
		cookie.MaxAge != 0 || strings.Contains(link.RawQuery, cookie.Value) {
		t.Errorf("the cookie is %+v, want one of this session, for this server alone, that is not the token", cookie)
	}
	if code := b.send(b.request("GET", at, "")).Code; code != http.StatusForbidden || used != 1 {
		t.Errorf("used again, the link is answered with %d, and %d uses were reported", code, used)
	}
	for _, token := range []string{"", "x", strings.ToLower(link.Query().Get("token"))} {
		if code := b.send(b.request("GET", "/?token="+token, "")).Code; code != http.StatusForbidden {
			t.Errorf("the token %q is answered with %d", token, code)
		}
	}
	// Who has the cookie may follow the link again: the token goes from the address, and that is all.
	b.cookie = cookie
	if answer := b.send(b.request("GET", at, "")); answer.Code != http.StatusSeeOther || len(answer.Result().Cookies()) != 0 {
		t.Errorf("with the cookie the used link is answered with %d", answer.Code)
	}
	// A redirect leads nowhere else.
	second, _ := url.Parse(s.Link())
	answer = b.send(b.request("GET", "//evil.example/?"+second.RawQuery, ""))
	if to := answer.Header().Get("Location"); strings.HasPrefix(to, "//") || strings.Contains(to, "://") {
		t.Errorf("the redirect leads to %q", to)
	}
}

func TestPagesLoadNothingFromElsewhere(t *testing.T) {
	b := open(t, newFake())
	for _, path := range []string{"/", "/plan", "/assets/live.js", "/nothing"} {
		h := b.send(b.request("GET", path, "")).Header()
		policy := h.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none';") || strings.Contains(policy, "unsafe") ||
			strings.Contains(policy, "http") || !strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: the policy is %q", path, policy)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "same-origin" ||
			h.Get("Cross-Origin-Resource-Policy") != "same-origin" {
			t.Errorf("%s: the headers are %v", path, h)
		}
	}
	page := b.get("/", http.StatusOK)
	for _, forbidden := range []string{" style=", " onclick=", "<script>", "javascript:", `src="http`, `href="http`} {
		if strings.Contains(page, forbidden) {
			t.Errorf("the page has %q, which the policy forbids", forbidden)
		}
	}
}
