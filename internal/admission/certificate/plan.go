package certificate

import (
	"crypto/x509"
	"fmt"
	"maps"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	corev1 "k8s.io/api/core/v1"
)

// Keys of the Secret. cert-manager's Secrets also have the keys tls.crt, tls.key and ca.crt.
const (
	certKey    = corev1.TLSCertKey
	privateKey = corev1.TLSPrivateKeyKey
	caCert     = "ca.crt"
	caKey      = "ca.key"
	nextCACert = "next-ca.crt"
	nextCAKey  = "next-ca.key"
)

// authorityOverlap is the time between adding an authority to all bundles and signing with this authority. API
// servers observe a changed webhook configuration within a few seconds at most.
const authorityOverlap = 15 * time.Second

// Lifetimes configures how long certificates are valid, and when they are renewed.
type Lifetimes struct {
	// Authority and Serving are the lifetimes of an authority and of a serving certificate. A certificate is renewed
	// when its remaining lifetime is shorter than the duration RenewBefore. This duration must be shorter than
	// Authority and Serving.
	Authority, Serving, RenewBefore time.Duration
}

// DefaultLifetimes returns 10 years for the authority, 90 days for the serving certificate, and 30 days for
// RenewBefore.
func DefaultLifetimes() Lifetimes {
	const day = 24 * time.Hour
	return Lifetimes{Authority: 3650 * day, Serving: 90 * day, RenewBefore: 30 * day}
}

type observed struct {
	data    map[string][]byte
	bundles [][]byte
	// bundledSince is when all bundles first contained the next authority. The time is zero while a bundle does not
	// contain this authority.
	bundledSince time.Time
	now          time.Time
}

// plannedStep contains the next step. If data is set, the Secret is written. If bundles is set, the configurations
// are written. Otherwise, the Keeper checks again after recheckAfter.
type plannedStep struct {
	data         map[string][]byte
	bundles      [][]byte
	recheckAfter time.Duration
}

// plan returns the next step. A valid authority is replaced only after all bundles have contained the next authority
// for the duration overlap.
func plan(o observed, hosts []string, lifetimes Lifetimes) (plannedStep, error) {
	maker := &rotator.CertRotator{
		CAName: authorityName, CAOrganization: "machinist", DNSName: hosts[0], ExtraDNSNames: hosts[1:],
		ExtKeyUsages: &serverAuth,
	}
	// The clocks of API servers may be slow. Certificates are valid from an hour before their creation.
	begin := o.now.Add(-time.Hour)

	authority, err := authorityOf(o.data[caCert], o.data[caKey], o.now)
	if err != nil {
		if authority, err = maker.CreateCACert(begin, o.now.Add(lifetimes.Authority)); err != nil {
			return plannedStep{}, fmt.Errorf("create a certificate authority: %w", err)
		}
		data, err := signServing(hosts, authority, begin, o.now.Add(lifetimes.Serving))
		return plannedStep{data: data}, err
	}
	required := []*x509.Certificate{authority.Cert}
	next, err := authorityOf(o.data[nextCACert], o.data[nextCAKey], o.now.Add(lifetimes.RenewBefore))
	if err == nil {
		required = []*x509.Certificate{next.Cert, authority.Cert}
	}
	if bundles, changed := bundlesWith(required, o.bundles, o.now); changed {
		return plannedStep{bundles: bundles}, nil
	}
	left := authority.Cert.NotAfter.Add(-lifetimes.RenewBefore).Sub(o.now)
	switch {
	case left > 0:
	case next == nil:
		if next, err = maker.CreateCACert(begin, o.now.Add(lifetimes.Authority)); err != nil {
			return plannedStep{}, fmt.Errorf("create the next certificate authority: %w", err)
		}
		data := maps.Clone(o.data)
		data[nextCACert], data[nextCAKey] = next.CertPEM, next.KeyPEM
		return plannedStep{data: data}, nil
	case !o.bundledSince.IsZero() && o.now.Sub(o.bundledSince) >= authorityOverlap:
		data, err := signServing(hosts, next, begin, o.now.Add(lifetimes.Serving))
		return plannedStep{data: data}, err
	case !o.bundledSince.IsZero():
		left = authorityOverlap - o.now.Sub(o.bundledSince)
	default:
		// Without a webhook configuration, no bundle can contain the next authority. A new webhook triggers another
		// check.
		left = authority.Cert.NotAfter.Sub(o.now) + time.Second
	}
	// A serving certificate is invalid after the end of its authority.
	serving, err := servingLeft(o.data, hosts, earliest(o.now.Add(lifetimes.RenewBefore), authority.Cert.NotAfter))
	if err != nil {
		data, err := signServing(hosts, authority, begin, o.now.Add(lifetimes.Serving))
		for _, key := range []string{nextCACert, nextCAKey} {
			if value, found := o.data[key]; found && err == nil {
				data[key] = value
			}
		}
		return plannedStep{data: data}, err
	}
	return plannedStep{recheckAfter: min(left, serving)}, nil
}
