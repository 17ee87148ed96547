package admission

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"sync"
	"time"
)

// verifyClients makes a server verify client certificates with the authorities in a file. Clients without a
// certificate can connect, so health probes work. The handler refuses requests without a client certificate (see
// limits).
func verifyClients(c *tls.Config, file string) {
	authorities := &authorityFile{name: file}
	c.ClientAuth = tls.VerifyClientCertIfGiven
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool, err := authorities.pool()
		if err != nil {
			return nil, err
		}
		own := c.Clone()
		own.GetConfigForClient, own.ClientCAs = nil, pool
		return own, nil
	}
}

// authorityFile reads certificate authorities from a file. A changed file is read again.
type authorityFile struct {
	name string

	mu      sync.Mutex
	changed time.Time
	last    *x509.CertPool
}

// pool returns the authorities. If the file cannot be read, for example during a write, pool returns the previous
// authorities.
func (f *authorityFile) pool() (*x509.CertPool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.name)
	if err == nil && f.last != nil && info.ModTime().Equal(f.changed) {
		return f.last, nil
	}
	var pool *x509.CertPool
	if err == nil {
		pool, err = readAuthorities(f.name)
	}
	switch {
	case err == nil:
		f.changed, f.last = info.ModTime(), pool
	case f.last == nil:
		return nil, err
	}
	return f.last, nil
}

func readAuthorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("the file contains no certificate in PEM format")
	}
	return pool, nil
}
