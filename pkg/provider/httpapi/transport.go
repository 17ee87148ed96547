package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"machinist.dev/machinist/pkg/provider/endpoints"
)

// Transport returns a copy of http.DefaultTransport that connects only to addresses that the rules allow. Transport
// keeps up to 256 idle connections per host, each for one minute.
//
// The proxy in the environment may have any address, because an administrator chose it. The proxy resolves names
// itself, so it must also deny addresses itself.
func Transport(rules endpoints.Rules) *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost, transport.IdleConnTimeout = 256, time.Minute
	var proxies sync.Map // addresses of proxies, as the transport dials them
	transport.Proxy = func(r *http.Request) (*url.URL, error) {
		if err := rules.CheckHost(r.URL.Hostname()); err != nil {
			return nil, err
		}
		proxy, err := http.ProxyFromEnvironment(r)
		if proxy != nil {
			proxies.Store(hostAndPort(proxy), true)
		}
		return proxy, err
	}
	direct, toProxy := rules.Dialer(), rules.Dialer()
	toProxy.Control = nil
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if _, isProxy := proxies.Load(address); isProxy {
			return toProxy.DialContext(ctx, network, address)
		}
		return direct.DialContext(ctx, network, address)
	}
	return transport
}

// hostAndPort returns the host and the port of a URL, as a transport dials them.
func hostAndPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// CheckLink returns an error if a link in a response has another scheme, host or port than the endpoint of the service.
// The access token must not be sent to such a link. The error contains the link without its query.
func CheckLink(endpoint, link string) error {
	base, err := url.Parse(endpoint)
	if err != nil {
		return fmt.Errorf("the endpoint %.256q is not a URL", endpoint)
	}
	to, err := base.Parse(link)
	if err != nil {
		return errors.New("a link in the response is not a URL")
	}
	if to.User == nil && to.Scheme == base.Scheme && strings.EqualFold(hostAndPort(to), hostAndPort(base)) {
		return nil
	}
	return fmt.Errorf("a link in the response leads to %.256q, and not to %.256q", publicURL(to), publicURL(base))
}

func publicURL(u *url.URL) string { return u.Scheme + "://" + u.Host + u.EscapedPath() }
