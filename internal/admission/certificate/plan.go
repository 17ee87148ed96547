package certificate

import (
	"crypto/x509"
	"fmt"
	"maps"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	corev1 "k8s.io/api/core/v1"
)

// Keys of the Secret. The first three are those of cert-manager's Secrets.
const (
	certKey    = corev1.TLSCertKey
	privateKey = corev1.TLSPrivateKeyKey
	caCert     = "ca.crt"
	caKey      = "ca.key"
	nextCACert = "next-ca.crt"
	nextCAKey  = "next-ca.key"
)

// overlap is how long an authority is in the bundle before it signs: far longer than API servers take to hear of a
// changed configuration.
const overlap = 15 * time.Second

// Lifetimes are how long certificates hold.
type Lifetimes struct {
	// Authority and Serving are from making to end. Ahead is how long before its end a certificate is renewed; it must be
	// shorter than both.
	Authority, Serving, Ahead time.Duration
}

// DefaultLifetimes are 10 years, 90 days, and 30 days ahead.
func DefaultLifetimes() Lifetimes {
	const day = 24 * time.Hour
	return Lifetimes{Authority: 3650 * day, Serving: 90 * day, Ahead: 30 * day}
}

// observed is what a plan is made from.
type observed struct {
	data    map[string][]byte // of the Secret
	bundles [][]byte          // of the webhooks
	// named is since when all bundles are known to name the next authority; zero when they don't.
	named time.Time
	now   time.Time
}

// planned is what there is to do: write the Secret, or the bundles, or check again after a while.
type planned struct {
	data    map[string][]byte
	bundles [][]byte
	again   time.Duration
}

// plan decides on the next step. Nothing but an authority that cannot sign any more is changed without an overlap.
func plan(o observed, hosts []string, lives Lifetimes) (planned, error) {
	maker := &rotator.CertRotator{
		CAName: authorityName, CAOrganization: "machinist", DNSName: hosts[0], ExtraDNSNames: hosts[1:],
		ExtKeyUsages: &serverAuth,
	}
	// Clocks of API servers may be behind.
	begin := o.now.Add(-time.Hour)

	authority, err := authorityOf(o.data[caCert], o.data[caKey], o.now)
	if err != nil {
		if authority, err = maker.CreateCACert(begin, o.now.Add(lives.Authority)); err != nil {
			return planned{}, fmt.Errorf("make a certificate authority: %w", err)
		}
		data, err := signed(hosts, authority, begin, o.now.Add(lives.Serving))
		return planned{data: data}, err
	}
	required := []*x509.Certificate{authority.Cert}
	next, err := authorityOf(o.data[nextCACert], o.data[nextCAKey], o.now.Add(lives.Ahead))
	if err == nil {
		required = []*x509.Certificate{next.Cert, authority.Cert}
	}
	if bundles, changed := bundlesWith(required, o.bundles, o.now); changed {
		return planned{bundles: bundles}, nil
	}
	left := authority.Cert.NotAfter.Add(-lives.Ahead).Sub(o.now)
	switch {
	case left > 0:
	case next == nil:
		if next, err = maker.CreateCACert(begin, o.now.Add(lives.Authority)); err != nil {
			return planned{}, fmt.Errorf("make the next certificate authority: %w", err)
		}
		data := maps.Clone(o.data)
		data[nextCACert], data[nextCAKey] = next.CertPEM, next.KeyPEM
		return planned{data: data}, nil
	case !o.named.IsZero() && o.now.Sub(o.named) >= overlap:
		data, err := signed(hosts, next, begin, o.now.Add(lives.Serving))
		return planned{data: data}, err
	case !o.named.IsZero():
		left = overlap - o.now.Sub(o.named)
	default:
		// There is no webhook to name the next authority. One that comes is an event.
		left = authority.Cert.NotAfter.Sub(o.now) + time.Second
	}
	// No certificate is good beyond its authority's end.
	serving, err := servingLeft(o.data, hosts, earliest(o.now.Add(lives.Ahead), authority.Cert.NotAfter))
	if err != nil {
		data, err := signed(hosts, authority, begin, o.now.Add(lives.Serving))
		for _, key := range []string{nextCACert, nextCAKey} {
			if value, found := o.data[key]; found && err == nil {
				data[key] = value
			}
		}
		return planned{data: data}, err
	}
	return planned{again: min(left, serving)}, nil
}
