package ui

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"html"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// tokenParameter is the name of the token in the link that opens a browser.
const tokenParameter = "token"

// access decides which requests the server answers. In addition to the user who started it, three others could send
// requests:
//
//   - Another user or program on this computer. It does not know the secret, which the browser got as a cookie in
//     exchange for the token in the link. A token can be exchanged only once, because links remain in the terminal and
//     in the history of browsers.
//   - A page of another site in the user's browser. The browser does not send the cookie with its requests
//     (SameSite=Strict). In addition, a request that names another site or origin is rejected.
//   - Such a page under a name that resolves to a loopback address (DNS rebinding). For the browser, this is the same
//     site. But its requests have that name as their Host.
type access struct {
	// hosts are the values of Host that are allowed.
	hosts []string
	// cookie is the name of the cookie. It contains the port, because cookies do not depend on ports.
	cookie string

	mu sync.Mutex
	// token can be exchanged for secret once.
	token  string
	secret string
}

// newAccess returns the access of a server that listens on an address.
func newAccess(address net.Addr) *access {
	host, port, _ := net.SplitHostPort(address.String())
	return &access{hosts: []string{net.JoinHostPort(host, port), net.JoinHostPort("localhost", port)},
		cookie: "machinist_ui_" + port, token: random(), secret: random()}
}

// random returns 256 random bits as text.
func random() string {
	bits := make([]byte, 32)
	_, _ = rand.Read(bits) // This never fails.
	return base64.RawURLEncoding.EncodeToString(bits)
}

// newToken returns a new token. The previous one is no longer valid.
func (a *access) newToken() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.token = random()
	return a.token
}

// exchange reports whether a token is valid, and invalidates it.
func (a *access) exchange(token string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(a.token)) != 1 {
		return false
	}
	a.token = ""
	return true
}

// reject returns why a request is rejected, even if it has the secret. It returns an empty string if the request is not
// rejected. A request with a token may come from another page, because the browser opens the link from a file.
func (a *access) reject(r *http.Request, withToken bool) string {
	if !slices.Contains(a.hosts, r.Host) {
		return "The host name of this request is not the name of this server."
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return "A page of another origin sent this request."
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case withToken, site == "", site == "same-origin", site == "none":
		// Programs do not send the header. It is "none" if the user typed the address.
		return ""
	}
	return "A page of another site sent this request."
}

// hasSecret reports whether the request has the secret in its cookie.
func (a *access) hasSecret(r *http.Request) bool {
	cookie, err := r.Cookie(a.cookie)
	return err == nil && subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(a.secret)) == 1
}

// protect passes allowed requests to next. It calls used when the token was exchanged.
func (a *access) protect(next http.Handler, used func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secureHeaders(w.Header())
		query := r.URL.Query()
		token := query.Get(tokenParameter)
		withToken := token != "" && r.Method == http.MethodGet
		if why := a.reject(r, withToken); why != "" {
			refuse(w, why)
			return
		}
		if withToken {
			fresh := a.exchange(token)
			if !fresh && !a.hasSecret(r) {
				refuse(w, "The link was already used, or belongs to an earlier machinist ui. Use the newest link in the terminal.")
				return
			}
			if fresh {
				http.SetCookie(w, &http.Cookie{Name: a.cookie, Value: a.secret, Path: "/", HttpOnly: true,
					SameSite: http.SameSiteStrictMode})
				used()
			}
			query.Del(tokenParameter)
			to := url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/"), RawQuery: query.Encode()}
			// After a redirect by the status, the browser would not send the cookie, because another page sent the first
			// request. This page sends the next one itself.
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write([]byte(RedirectPage(to.String())))
			return
		}
		if !a.hasSecret(r) {
			refuse(w, "Open the link that machinist ui shows in the terminal.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// RedirectPage returns a page that opens a link.
func RedirectPage(link string) string {
	link = html.EscapeString(link)
	return `<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>machinist ui</title>` +
		`<meta http-equiv="refresh" content="0; url=` + link + `"><a href="` + link + `">Open the fleet view</a>` + "\n"
}

// contentPolicy allows a page only to load styles, scripts and images from this server, and to send requests to it.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func secureHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// With "no-referrer", a form of this server would hide its origin, like a form of another site may do.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// refuse answers with plain text, so that a refused client gets no page.
func refuse(w http.ResponseWriter, why string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusForbidden)
	_, _ = w.Write([]byte("machinist ui: " + why + "\n"))
}

// Loopback reports whether an address of --listen can be reached only from this machine. It returns false for names
// other than localhost, because they may resolve to any address.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
