package certificate

import (
	"bytes"
	"crypto/x509"
	"testing"
	"time"
)

var (
	start     = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	hosts     = []string{"machinist-manager.machinist-system.svc", "localhost"}
	lifetimes = Lifetimes{Authority: 100 * time.Hour, Serving: 60 * time.Hour, RenewBefore: 5 * time.Hour}
)

// installation is a Secret with the bundles of two webhooks. An installation executes plans at the time of its fake
// clock.
type installation struct {
	t *testing.T
	observed
}

func begin(t *testing.T) *installation {
	return &installation{t: t, observed: observed{now: start, bundles: [][]byte{nil, nil}}}
}

func (i *installation) step() time.Duration {
	i.t.Helper()
	if next, err := parse(i.data[nextCACert]); err == nil && len(i.bundles) > 0 && contains(i.bundles[0], next) &&
		contains(i.bundles[1], next) {
		if i.bundledSince.IsZero() {
			i.bundledSince = i.now
		}
	} else {
		i.bundledSince = time.Time{}
	}
	p, err := plan(i.observed, hosts, lifetimes)
	if err != nil {
		i.t.Fatal(err)
	}
	switch {
	case p.data != nil:
		i.data = p.data
	case p.bundles != nil:
		i.bundles = p.bundles
	default:
		return p.recheckAfter
	}
	return 0
}

// runSteps executes all steps that are due. After each step, the current and the previous bundles must trust the
// presented certificate, because API servers read changes late.
func (i *installation) runSteps() time.Duration {
	i.t.Helper()
	for range 10 {
		before := i.bundles
		again := i.step()
		for _, bundles := range [][][]byte{before, i.bundles} {
			for _, bundle := range bundles {
				if bundle != nil {
					i.trusted(bundle)
				}
			}
		}
		if again > 0 {
			return again
		}
	}
	i.t.Fatal("the plan does not end")
	return 0
}

func (i *installation) trusted(bundle []byte) {
	i.t.Helper()
	leaf, err := parse(i.data[certKey])
	if err != nil {
		i.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	for _, host := range hosts {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: host, CurrentTime: i.now}); err != nil {
			i.t.Fatalf("after %s: the presented certificate is not trusted: %v", i.now.Sub(start), err)
		}
	}
}

func contains(bundle []byte, cert *x509.Certificate) bool {
	for _, c := range authorities(bundle) {
		if c.Equal(cert) {
			return true
		}
	}
	return false
}

func TestCertificateIsRenewedBySameAuthority(t *testing.T) {
	i := begin(t)
	again := i.runSteps()
	if want := lifetimes.Serving - lifetimes.RenewBefore; again != want {
		t.Errorf("checks again after %s, want %s", again, want)
	}
	former := i.observed
	i.now = i.now.Add(again - time.Second)
	if i.runSteps() != time.Second || !bytes.Equal(i.data[certKey], former.data[certKey]) {
		t.Error("renewed too early")
	}
	i.now = i.now.Add(2 * time.Second)
	i.runSteps()
	if bytes.Equal(i.data[certKey], former.data[certKey]) || !bytes.Equal(i.data[caCert], former.data[caCert]) {
		t.Error("not renewed by the same authority")
	}
}

func TestAuthorityIsTrustedBeforeItSigns(t *testing.T) {
	i := begin(t)
	seen := map[string]bool{}
	for i.now.Before(start.Add(3 * lifetimes.Authority)) {
		again := i.runSteps()
		seen[string(i.data[caCert])] = true
		if n := len(authorities(i.bundles[0])); n > maxAuthorities {
			t.Fatalf("the bundle contains %d authorities", n)
		}
		i.now = i.now.Add(again)
	}
	if len(seen) < 3 {
		t.Errorf("%d authorities in three lifetimes", len(seen))
	}
}

func TestNextAuthoritySignsOnlyAfterOverlap(t *testing.T) {
	i := begin(t)
	again := i.runSteps()
	first := i.data[caCert]
	for i.data[nextCACert] == nil {
		i.now = i.now.Add(again)
		again = i.runSteps()
	}
	if again != authorityOverlap || !bytes.Equal(i.data[caCert], first) {
		t.Fatalf("checks again after %s with the authority changed=%v", again, !bytes.Equal(i.data[caCert], first))
	}
	// If another client clears a bundle, the overlap starts again.
	i.now = i.now.Add(authorityOverlap - time.Second)
	i.bundles = [][]byte{i.bundles[0], nil}
	i.step()
	i.step()
	i.now = i.now.Add(2 * time.Second)
	if i.runSteps(); !bytes.Equal(i.data[caCert], first) {
		t.Error("the next authority signed before the overlap had passed again")
	}
	i.now = i.now.Add(authorityOverlap)
	if i.runSteps(); bytes.Equal(i.data[caCert], first) || i.data[nextCACert] != nil {
		t.Error("the next authority never signed")
	}
}

func TestDamagedSecretIsRepaired(t *testing.T) {
	for name, damage := range map[string]func(map[string][]byte){
		"nothing":               func(data map[string][]byte) { clear(data) },
		"the authority's key":   func(data map[string][]byte) { data[caKey] = []byte("x") },
		"the authority":         func(data map[string][]byte) { delete(data, caCert) },
		"the certificate":       func(data map[string][]byte) { data[certKey] = data[caCert] },
		"the certificate's key": func(data map[string][]byte) { data[privateKey] = data[caKey] },
		"the next authority":    func(data map[string][]byte) { data[nextCACert] = []byte("x") },
	} {
		t.Run(name, func(t *testing.T) {
			i := begin(t)
			i.runSteps()
			damage(i.data)
			for range 5 {
				i.step()
			}
			i.runSteps()
			for _, bundle := range i.bundles {
				i.trusted(bundle)
			}
		})
	}
}

func TestAnotherHostRequiresAnotherCertificate(t *testing.T) {
	i := begin(t)
	i.runSteps()
	p, err := plan(i.observed, []string{"elsewhere.example"}, lifetimes)
	if err != nil || p.data == nil || !bytes.Equal(p.data[caCert], i.data[caCert]) {
		t.Errorf("got %+v, %v; want a certificate for the host, of the same authority", p, err)
	}
}

// An IP address among the DNS names would never be valid, and each step would replace the certificate.
func TestHostMayBeAnIPAddress(t *testing.T) {
	for _, hosts := range [][]string{{"127.0.0.1"}, {"localhost", "127.0.0.1", "2001:db8::1"}} {
		o := observed{now: start, bundles: [][]byte{nil}}
		for range 3 {
			p, err := plan(o, hosts, lifetimes)
			if err != nil {
				t.Fatal(err)
			}
			if p.data != nil {
				o.data = p.data
			}
			if p.bundles != nil {
				o.bundles = p.bundles
			}
			if p.recheckAfter > 0 {
				o.bundledSince = start
				break
			}
		}
		if o.bundledSince.IsZero() {
			t.Errorf("%v: the plan does not end", hosts)
		}
		leaf, err := parse(o.data[certKey])
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range hosts {
			if err := leaf.VerifyHostname(host); err != nil {
				t.Errorf("%v: %v", hosts, err)
			}
		}
	}
}

// Without webhooks, no API server trusts the next authority, so it must never sign. The current authority is used until
// it expires.
func TestCertificateIsRenewedWithoutWebhooks(t *testing.T) {
	i := begin(t)
	i.bundles = nil
	for i.now.Before(start.Add(2 * lifetimes.Authority)) {
		i.now = i.now.Add(i.runSteps())
	}
	if leaf, err := parse(i.data[certKey]); err != nil || leaf.NotAfter.Before(i.now) {
		t.Errorf("ended with %v, %v", leaf, err)
	}
}
