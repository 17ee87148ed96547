package certificate

import (
	"bytes"
	"crypto/x509"
	"testing"
	"time"
)

var (
	start = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	hosts = []string{"machinist-manager.machinist-system.svc", "localhost"}
	lives = Lifetimes{Authority: 100 * time.Hour, Serving: 60 * time.Hour, Ahead: 5 * time.Hour}
)

// installation is a Secret and the bundles of two webhooks, and plays the keeper's part on a clock.
type installation struct {
	t *testing.T
	observed
}

func begin(t *testing.T) *installation {
	return &installation{t: t, observed: observed{now: start, bundles: [][]byte{nil, nil}}}
}

// step carries out one step of the plan and reports how long nothing must be done.
func (i *installation) step() time.Duration {
	i.t.Helper()
	if next, err := parse(i.data[nextCACert]); err == nil && len(i.bundles) > 0 && contains(i.bundles[0], next) &&
		contains(i.bundles[1], next) {
		if i.named.IsZero() {
			i.named = i.now
		}
	} else {
		i.named = time.Time{}
	}
	p, err := plan(i.observed, hosts, lives)
	if err != nil {
		i.t.Fatal(err)
	}
	switch {
	case p.data != nil:
		i.data = p.data
	case p.bundles != nil:
		i.bundles = p.bundles
	default:
		return p.again
	}
	return 0
}

// settle goes on until nothing must be done for now, and checks that what is presented is trusted by the bundles,
// those of now and of before the last change: API servers hear late.
func (i *installation) settle() time.Duration {
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
	i.t.Fatal("the plan comes to no end")
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
			i.t.Fatalf("after %s: what is presented is not trusted: %v", i.now.Sub(start), err)
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

func TestACertificateIsRenewedAheadByTheSameAuthority(t *testing.T) {
	i := begin(t)
	again := i.settle()
	if want := lives.Serving - lives.Ahead; again != want {
		t.Errorf("checks again after %s, want %s", again, want)
	}
	former := i.observed
	i.now = i.now.Add(again - time.Second)
	if i.settle() != time.Second || !bytes.Equal(i.data[certKey], former.data[certKey]) {
		t.Error("renewed too early")
	}
	i.now = i.now.Add(2 * time.Second)
	i.settle()
	if bytes.Equal(i.data[certKey], former.data[certKey]) || !bytes.Equal(i.data[caCert], former.data[caCert]) {
		t.Error("not renewed by the same authority")
	}
}

// Years pass, at whatever moments the keeper looks: what is presented is trusted at each, and authorities change.
func TestAnAuthorityIsTrustedBeforeItSigns(t *testing.T) {
	i := begin(t)
	seen := map[string]bool{}
	for i.now.Before(start.Add(3 * lives.Authority)) {
		again := i.settle()
		seen[string(i.data[caCert])] = true
		if n := len(authorities(i.bundles[0])); n > mostAuthorities {
			t.Fatalf("the bundle names %d authorities", n)
		}
		i.now = i.now.Add(again)
	}
	if len(seen) < 3 {
		t.Errorf("%d authorities in three lifetimes", len(seen))
	}
}

func TestTheOverlapIsWaitedFor(t *testing.T) {
	i := begin(t)
	again := i.settle()
	first := i.data[caCert]
	for i.data[nextCACert] == nil {
		i.now = i.now.Add(again)
		again = i.settle()
	}
	if again != overlap || !bytes.Equal(i.data[caCert], first) {
		t.Fatalf("checks again after %s with the authority changed=%v", again, !bytes.Equal(i.data[caCert], first))
	}
	// Somebody empties a bundle: the overlap begins anew.
	i.now = i.now.Add(overlap - time.Second)
	i.bundles = [][]byte{i.bundles[0], nil}
	i.step()
	i.step()
	i.now = i.now.Add(2 * time.Second)
	if i.settle(); !bytes.Equal(i.data[caCert], first) {
		t.Error("it signed before the overlap had passed again")
	}
	i.now = i.now.Add(overlap)
	if i.settle(); bytes.Equal(i.data[caCert], first) || i.data[nextCACert] != nil {
		t.Error("it never signed")
	}
}

func TestWhatIsBrokenIsMadeAnew(t *testing.T) {
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
			i.settle()
			damage(i.data)
			for range 5 {
				i.step()
			}
			i.settle()
			for _, bundle := range i.bundles {
				i.trusted(bundle)
			}
		})
	}
}

func TestAnotherHostTakesAnotherCertificate(t *testing.T) {
	i := begin(t)
	i.settle()
	p, err := plan(i.observed, []string{"elsewhere.example"}, lives)
	if err != nil || p.data == nil || !bytes.Equal(p.data[caCert], i.data[caCert]) {
		t.Errorf("got %+v, %v; want a certificate for the host, of the same authority", p, err)
	}
}

// Without any webhook to trust the next authority, it never signs: the one now is used to its end and made anew then.
// An IP address as a DNS name would hold for nobody, and be made again at once, for ever.
func TestAHostMayBeAnIPAddress(t *testing.T) {
	for _, hosts := range [][]string{{"127.0.0.1"}, {"localhost", "127.0.0.1", "2001:db8::1"}} {
		o := observed{now: start, bundles: [][]byte{nil}}
		for range 3 {
			p, err := plan(o, hosts, lives)
			if err != nil {
				t.Fatal(err)
			}
			if p.data != nil {
				o.data = p.data
			}
			if p.bundles != nil {
				o.bundles = p.bundles
			}
			if p.again > 0 {
				o.named = start
				break
			}
		}
		if o.named.IsZero() {
			t.Errorf("%v: there is always something to do", hosts)
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

func TestWithoutWebhooksNothingStandsStill(t *testing.T) {
	i := begin(t)
	i.bundles = nil
	for i.now.Before(start.Add(2 * lives.Authority)) {
		i.now = i.now.Add(i.settle())
	}
	if leaf, err := parse(i.data[certKey]); err != nil || leaf.NotAfter.Before(i.now) {
		t.Errorf("ended with %v, %v", leaf, err)
	}
}
