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

// tokenParameter is the name of the query parameter that contains the token in a link.
const tokenParameter = "token"

// access decides which requests the server answers. Three kinds of clients other than the user's own browser can send
// requests:
//
//   - Another user or program on this computer. Such a client does not know the secret. The browser received the secret
//     as a cookie in exchange for the token in the link. A token is valid for only one exchange, because links remain
//     in the terminal and in the history of browsers.
//   - A page of another site in the user's browser. The browser does not send the cookie with requests of such a page
//     (SameSite=Strict). In addition, the server rejects requests whose headers name another site or origin.
//   - A page whose host name resolves to a loopback address (DNS rebinding). The browser connects to this server and
//     regards it as the site of the page. But the header Host of the requests contains the host name of the page.
type access struct {
	// hosts are the allowed values of the header Host.
	hosts []string
	// cookie is the name of the cookie. The name contains the port, because browsers send the cookies of a host to all of
	// its ports.
	cookie string

	mu sync.Mutex
	// token is the token of the current link. A browser can exchange the token for the value of secret, but only once.
	token  string
	secret string
}

// newAccess returns an access for a server that listens on the given address.
func newAccess(address net.Addr) *access {
	host, port, _ := net.SplitHostPort(address.String())
	return &access{hosts: []string{net.JoinHostPort(host, port), net.JoinHostPort("localhost", port)},
		cookie: "machinist_ui_" + port, token: random(), secret: random()}
}

// random returns a text that encodes 256 random bits.
func random() string {
	bits := make([]byte, 32)
	_, _ = rand.Read(bits) // This never fails.
	return base64.RawURLEncoding.EncodeToString(bits)
}

// newToken replaces the token with a new one and returns it. The previous token becomes invalid.
func (a *access) newToken() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.token = random()
	return a.token
}

// exchange reports whether a token is valid. The call makes a valid token invalid, so that the token cannot be used
// again.
func (a *access) exchange(token string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(a.token)) != 1 {
		return false
	}
	a.token = ""
	return true
}

// reject returns the reason why a request must be rejected because of its headers, or "" if its headers are allowed. It
// does not check the secret. A request with a token may come from a page of another site, because the browser opens the
// link from a file.
func (a *access) reject(r *http.Request, withToken bool) string {
	if !slices.Contains(a.hosts, r.Host) {
		return "The host name of this request is not the name of this server."
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return "A page of another origin sent this request."
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case withToken, site == "", site == "same-origin", site == "none":
		// Programs other than browsers do not send the header Sec-Fetch-Site. If the user has typed the address, the value is
		// "none".
		return ""
	}
	return "A page of another site sent this request."
}

// hasSecret reports whether the cookie of a request contains the secret.
func (a *access) hasSecret(r *http.Request) bool {
	cookie, err := r.Cookie(a.cookie)
	return err == nil && subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(a.secret)) == 1
}

// protect returns a handler that passes allowed requests to next. When a client has exchanged the token, the handler
// calls the function used.
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
			// If the server answered with a redirect status, the browser would not send the cookie with the next request,
			// because a page of another site has caused the redirect. So the server sends a page that itself causes the next
			// request.
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

// contentPolicy allows pages to load styles, scripts and images only from this server, and to send requests only to
// this server.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func secureHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// With "no-referrer", forms of this server would hide their origin. Then the server could not distinguish them from
	// forms of other sites.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// refuse answers a request with the status 403 and a reason in plain text.
func refuse(w http.ResponseWriter, why string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusForbidden)
	_, _ = w.Write([]byte("machinist ui: " + why + "\n"))
}

// Loopback reports whether only clients on this computer can reach an address of --listen. It returns false for all
// host names except localhost, because they may resolve to any address.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
