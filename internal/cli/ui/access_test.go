package ui

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestListenRefusesOtherAddressesThanLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:0": true, "127.8.9.10:80": true, "[::1]:0": true, "localhost:8085": true,
		"0.0.0.0:80": false, ":80": false, "[::]:80": false, "192.168.1.2:80": false,
		"example.com:80": false, "127.0.0.1": false,
		"localhost.example.com:1": false, "[::ffff:127.0.0.1]:80": true, "127.1:80": false, "": false,
	} {
		if got := Loopback(address); got != want {
			t.Errorf("Loopback(%q) = %v, want %v", address, got, want)
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

func TestAccess(t *testing.T) {
	b := open(t, newFake())
	host := b.server.listener.Addr().String()
	port := host[strings.LastIndex(host, ":"):]
	for name, test := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"the user":                      {func(*http.Request) {}, http.StatusOK},
		"the name localhost":            {func(r *http.Request) { r.Host = "localhost" + port }, http.StatusOK},
		"a page of this server":         {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }, http.StatusOK},
		"an address that was typed":     {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") }, http.StatusOK},
		"a form of this server":         {func(r *http.Request) { r.Header.Set("Origin", "http://"+host) }, http.StatusOK},
		"without the cookie":            {func(r *http.Request) { r.Header.Del("Cookie") }, http.StatusForbidden},
		"with another cookie":           {func(r *http.Request) { r.Header.Set("Cookie", b.cookie.Name+"=x") }, http.StatusForbidden},
		"with an empty cookie":          {func(r *http.Request) { r.Header.Set("Cookie", b.cookie.Name+"=") }, http.StatusForbidden},
		"a page of another site":        {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden},
		"a page of another port":        {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, http.StatusForbidden},
		"another origin":                {func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, http.StatusForbidden},
		"an origin of another port":     {func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:1") }, http.StatusForbidden},
		"a hidden origin":               {func(r *http.Request) { r.Header.Set("Origin", "null") }, http.StatusForbidden},
		"a name that resolves to it":    {func(r *http.Request) { r.Host = "rebound.example" + port }, http.StatusForbidden},
		"such a name as the origin too": {func(r *http.Request) { r.Host = "rebound.example" + port; r.Header.Set("Origin", "http://"+r.Host) }, http.StatusForbidden},
		"its address with another port": {func(r *http.Request) { r.Host = "127.0.0.1:1" }, http.StatusForbidden},
		"its address without the port":  {func(r *http.Request) { r.Host = "127.0.0.1" }, http.StatusForbidden},
	} {
		for _, path := range []string{"/", "/machines", "/events?x", "/assets/style.css", "/plan"} {
			if path == "/events?x" && test.want == http.StatusOK {
				continue // Another test checks the stream, because the stream does not end.
			}
			r := b.request("GET", path, "")
			test.change(r)
			answer := b.send(r)
			if answer.Code != test.want {
				t.Errorf("%s, %s: status %d, want %d", name, path, answer.Code, test.want)
			}
			if test.want == http.StatusForbidden && strings.Contains(answer.Body.String(), "<") {
				t.Errorf("%s, %s: a refused request gets a page", name, path)
			}
		}
	}
	// The server must also refuse requests from forms of other sites, and requests with methods other than GET.
	r := b.request("POST", "/plan", "manifest=x")
	r.Header.Set("Origin", "http://evil.example")
	if code := b.send(r).Code; code != http.StatusForbidden {
		t.Errorf("a form of another site: status %d", code)
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		if code := b.send(b.request(method, "/machines", "")).Code; code != http.StatusMethodNotAllowed {
			t.Errorf("%s: status %d", method, code)
		}
	}
}

func TestLinkCanBeUsedOnce(t *testing.T) {
	s := listen(t, newFake())
	used := 0
	s.options.OnLinkUsed = func(string) { used++ }
	b := &browser{t: t, server: s, handler: s.Handler()}
	link, _ := url.Parse(s.Link())
	at := "/machines?q=a&" + link.RawQuery
	// The machinist command writes a file with the link, and the browser opens this file. Therefore the browser sends
	// the request with Sec-Fetch-Site: cross-site.
	request := b.request("GET", at, "")
	request.Header.Set("Sec-Fetch-Site", "cross-site")
	answer := b.send(request)
	if page := answer.Body.String(); answer.Code != http.StatusOK || !strings.Contains(page, `url=/machines?q=a"`) ||
		strings.Contains(page, link.Query().Get("token")) {
		t.Errorf("status %d, page %q, want a page that opens the URL without the token", answer.Code, page)
	}
	cookie := answer.Result().Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Domain != "" ||
		cookie.MaxAge != 0 || strings.Contains(link.RawQuery, cookie.Value) {
		t.Errorf("the cookie is %+v, want a session cookie for this server only that differs from the token", cookie)
	}
	if code := b.send(b.request("GET", at, "")).Code; code != http.StatusForbidden || used != 1 {
		t.Errorf("the second use of the link: status %d, %d uses reported", code, used)
	}
	for _, token := range []string{"", "x", strings.ToLower(link.Query().Get("token"))} {
		if code := b.send(b.request("GET", "/?token="+token, "")).Code; code != http.StatusForbidden {
			t.Errorf("token %q: status %d", token, code)
		}
	}
	// With the cookie, the user may open the link again. The response redirects to the same URL without the token.
	b.cookie = cookie
	if answer := b.send(b.request("GET", at, "")); answer.Code != http.StatusOK || len(answer.Result().Cookies()) != 0 {
		t.Errorf("the used link with the cookie: status %d", answer.Code)
	}
	// The answer must not redirect to another server, and must not contain a script.
	for _, path := range []string{"//evil.example/", "/\\evil.example/", `/"><script>alert(1)</script>`} {
		second, _ := url.Parse(s.Link())
		r := b.request("GET", "/?"+second.RawQuery, "")
		r.URL.Path = path
		page := b.send(r).Body.String()
		if !strings.Contains(page, `url=/`) || strings.Contains(page, `url=//`) || strings.Contains(page, "\\") ||
			strings.Contains(page, "<script") {
			t.Errorf("%s: the page is %q", path, page)
		}
	}
}

func TestPagesLoadNothingFromOtherServers(t *testing.T) {
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
