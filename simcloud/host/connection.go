package host

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	storageclient "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	_ "machinist.dev/machinist/internal/platform/roots" // Images have no root certificates of their own.
)

const (
	// callTimeout applies to calls other than watches.
	callTimeout = 30 * time.Second
	// pingAfter is the silence after which a connection is tested. pingTimeout limits the test.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
	headerTable = 256
)

// connection contains the clients of the API server for one identity, such as a node certificate. Each identity has its
// own HTTP/2 connection, because TLS authenticates a whole connection.
type connection struct {
	core         *coreclient.CoreV1Client
	coordination *coordinationclient.CoordinationV1Client
	certificates *certificatesclient.CertificatesV1Client
	storage      *storageclient.StorageV1Client

	transport *http.Transport
	mu        sync.Mutex
	open      map[net.Conn]bool
	closed    bool
}

// connect prepares a connection with a certificate or, without one, with the bootstrap token. Nothing is sent yet.
func connect(b *bootstrap, roots *x509.CertPool, certificate *tls.Certificate) (*connection, error) {
	c := &connection{open: map[net.Conn]bool{}}
	c.transport = &http.Transport{
		DialContext:         c.dial,
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: b.serverName},
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout,
			// A machine makes only a few calls per minute, so small tables are enough.
			MaxDecoderHeaderTableSize: headerTable, MaxEncoderHeaderTableSize: headerTable,
		},
	}
	var roundTripper http.RoundTripper = c.transport
	if certificate != nil {
		c.transport.TLSClientConfig.Certificates = []tls.Certificate{*certificate}
	} else {
		roundTripper = transport.NewBearerAuthRoundTripper(b.token, roundTripper)
	}
	client := &http.Client{
		Transport:     roundTripper,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	config := &rest.Config{
		Host: b.server,
		ContentConfig: rest.ContentConfig{
			AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json",
			ContentType:        "application/vnd.kubernetes.protobuf",
		},
		UserAgent:      "kubelet/" + b.version + " (simulated)",
		QPS:            -1, // A kubelet limits its load itself.
		WarningHandler: rest.NoWarnings{},
	}
	var err error
	if c.core, err = coreclient.NewForConfigAndClient(config, client); err != nil {
		return nil, fmt.Errorf("prepare the connection to %s: %w", b.server, err)
	}
	if c.coordination, err = coordinationclient.NewForConfigAndClient(config, client); err != nil {
		return nil, fmt.Errorf("prepare the connection to %s: %w", b.server, err)
	}
	if c.certificates, err = certificatesclient.NewForConfigAndClient(config, client); err != nil {
		return nil, fmt.Errorf("prepare the connection to %s: %w", b.server, err)
	}
	if c.storage, err = storageclient.NewForConfigAndClient(config, client); err != nil {
		return nil, fmt.Errorf("prepare the connection to %s: %w", b.server, err)
	}
	return c, nil
}

// dial tracks the connection, so that switching off the machine can close it before net/http notices.
func (c *connection) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		conn.Close()
		return nil, net.ErrClosed
	}
	tracked := &trackedConn{Conn: conn, owner: c}
	c.open[tracked] = true
	return tracked, nil
}

// trackedConn removes itself from its owner when closed.
type trackedConn struct {
	net.Conn
	owner *connection
}

func (t *trackedConn) Close() error {
	t.owner.mu.Lock()
	delete(t.owner.open, t)
	t.owner.mu.Unlock()
	return t.Conn.Close()
}

func (c *connection) close() {
	c.mu.Lock()
	c.closed = true
	open := c.open
	c.open = map[net.Conn]bool{}
	c.mu.Unlock()
	for conn := range open {
		conn.Close()
	}
	c.transport.CloseIdleConnections()
}
