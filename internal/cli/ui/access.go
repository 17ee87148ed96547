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

// tokenParameter is the query parameter with the token of a link.
const tokenParameter = "token"

// accessChecker decides which requests the server answers. Three kinds of foreign clients can send requests:
//
//   - Another user or program on this computer. This client does not have the cookie with the secret, which the browser
//     got when the user opened the link. Links remain in terminals and histories, so the token in a link is valid only
//     once.
//   - A page of another site in the user's browser. The browser does not send the cookie with the requests of this page
//     (SameSite=Strict). The server also rejects headers that name another site or origin.
//   - A page whose host name resolves to a loopback address (DNS rebinding). The header Host of its requests contains
//     this host name.
type accessChecker struct {
	// hosts are the allowed values of the header Host.
	hosts []string
	// cookie is the name of the cookie with the secret. The name contains the port, so that several servers on one host
	// do not overwrite each other's cookies: browsers use the same cookies for all ports of a host.
	cookie string

	mu sync.Mutex
	// token is the one-time password in the current link. The first request with this token gets the secret as a
	// cookie.
	token  string
	secret string
}

func newAccess(address net.Addr) *accessChecker {
	host, port, _ := net.SplitHostPort(address.String())
	return &accessChecker{hosts: []string{net.JoinHostPort(host, port), net.JoinHostPort("localhost", port)},
		cookie: "machinist_ui_" + port, token: random(), secret: random()}
}

// random returns 256 random bits as text.
func random() string {
	bits := make([]byte, 32)
	_, _ = rand.Read(bits) // This never fails.
	return base64.RawURLEncoding.EncodeToString(bits)
}

// newToken replaces the token. The previous token becomes invalid.
func (a *accessChecker) newToken() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.token = random()
	return a.token
}

// exchange invalidates a valid token and returns true. If the token is not valid, exchange returns false.
func (a *accessChecker) exchange(token string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(a.token)) != 1 {
		return false
	}
	a.token = ""
	return true
}

// reject checks the headers of a request. If a header is not allowed, reject returns the reason. Otherwise, the
// method returns "". A request with a token may come from another site, because the browser opens the link from a
// local file.
func (a *accessChecker) reject(r *http.Request, withToken bool) string {
	if !slices.Contains(a.hosts, r.Host) {
		return "The host name of this request is not the name of this server."
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return "A page of another origin sent this request."
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case withToken, site == "", site == "same-origin", site == "none":
		// Only browsers send Sec-Fetch-Site. The value is "none" if the user has typed the address.
		return ""
	}
	return "A page of another site sent this request."
}

func (a *accessChecker) hasSecret(r *http.Request) bool {
	cookie, err := r.Cookie(a.cookie)
	return err == nil && subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(a.secret)) == 1
}

// protect returns a handler that refuses forbidden requests, and passes the other requests to the handler next. When a
// client has opened the link, the returned handler calls onLinkUsed.
func (a *accessChecker) protect(next http.Handler, onLinkUsed func()) http.Handler {
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
				onLinkUsed()
			}
			query.Del(tokenParameter)
			to := url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/"), RawQuery: query.Encode()}
			// After an HTTP redirect, the browser would not send the cookie, because it treats the new request as a
			// request of the other site. Therefore the server sends a page of its own, and this page opens the next
			// URL.
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

// RedirectPage returns an HTML page that redirects the browser to a link.
func RedirectPage(link string) string {
	link = html.EscapeString(link)
	return `<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>machinist ui</title>` +
		`<meta http-equiv="refresh" content="0; url=` + link + `"><a href="` + link + `">Open the fleet view</a>` + "\n"
}

// contentPolicy restricts pages to this server's styles, scripts, images and requests.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func secureHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// "no-referrer" would hide the origin of this server's own forms.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

func refuse(w http.ResponseWriter, why string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusForbidden)
	_, _ = w.Write([]byte("machinist ui: " + why + "\n"))
}

// Loopback reports whether only this computer can reach an address of --listen. Host names except localhost may resolve
// to any address.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
