package ui

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
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

// access decides who may ask the server. Three things could ask beside the person who started it:
//
//   - another user or program of this machine. It does not know the secret that the browser got as a cookie in
//     exchange for the token of the link. A token is good for one exchange: arguments of programs and histories of
//     browsers keep links.
//   - a page of another site in the person's browser. The cookie is not sent with its requests (SameSite=Strict), and
//     a request that names another site or origin is rejected anyway.
//   - such a page under a name that its owner lets resolve to loopback (DNS rebinding), for which both are the same
//     site. Its requests carry that name as their Host.
type access struct {
	// hosts are what a request may name as its Host.
	hosts []string
	// cookie is the name of the cookie. Cookies know no ports: two servers need two names.
	cookie string

	mu sync.Mutex
	// token is exchanged for secret, once.
	token  string
	secret string
}

// newAccess returns the access of a server that listens on an address.
func newAccess(address net.Addr) *access {
	host, port, _ := net.SplitHostPort(address.String())
	return &access{hosts: []string{net.JoinHostPort(host, port), net.JoinHostPort("localhost", port)},
		cookie: "machinist_ui_" + port, token: random(), secret: random()}
}

// random returns 256 bits that nobody can guess.
func random() string {
	bits := make([]byte, 32)
	_, _ = rand.Read(bits) // It never fails.
	return base64.RawURLEncoding.EncodeToString(bits)
}

// newToken makes another token, in place of one that was not used.
func (a *access) newToken() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.token = random()
	return a.token
}

// exchange uses a token up.
func (a *access) exchange(token string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(a.token)) != 1 {
		return false
	}
	a.token = ""
	return true
}

// reject says why a request is rejected whoever sends it, "" if it is not.
func (a *access) reject(r *http.Request) string {
	if !slices.Contains(a.hosts, r.Host) {
		return "This server is asked for under another name than its own."
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return "A page of another origin sent this request."
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none": // Programs do not send it; a person typed the address or followed a link in a terminal.
	default:
		return "A page of another site sent this request."
	}
	return ""
}

// knows reports whether the request has the secret.
func (a *access) knows(r *http.Request) bool {
	cookie, err := r.Cookie(a.cookie)
	return err == nil && subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(a.secret)) == 1
}

// protect lets the requests through to next that may be made. used is called when the token was exchanged.
func (a *access) protect(next http.Handler, used func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secureHeaders(w.Header())
		if why := a.reject(r); why != "" {
			refuse(w, why)
			return
		}
		query := r.URL.Query()
		if token := query.Get(tokenParameter); token != "" && r.Method == http.MethodGet {
			fresh := a.exchange(token)
			if !fresh && !a.knows(r) {
				refuse(w, "The link was used before, or is of an earlier machinist ui. The terminal shows the next one.")
				return
			}
			if fresh {
				http.SetCookie(w, &http.Cookie{Name: a.cookie, Value: a.secret, Path: "/", HttpOnly: true,
					SameSite: http.SameSiteStrictMode})
				used()
			}
			query.Del(tokenParameter)
			to := url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/"), RawQuery: query.Encode()}
			http.Redirect(w, r, to.String(), http.StatusSeeOther)
			return
		}
		if !a.knows(r) {
			refuse(w, "Open the link that machinist ui shows in its terminal.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// contentPolicy lets a page load its own style, script and pictures and ask this server, and nothing else.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func secureHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// Not "no-referrer": a form of our own would then hide its origin, as one of another site may.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// refuse answers without a page: who is refused gets nothing of ours to load.
func refuse(w http.ResponseWriter, why string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusForbidden)
	_, _ = w.Write([]byte("machinist ui: " + why + "\n"))
}

// Loopback reports whether an address of --listen names this machine only. A name other than localhost may resolve to
// anything.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
