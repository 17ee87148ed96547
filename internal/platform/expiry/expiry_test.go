package expiry

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	certutil "k8s.io/client-go/util/cert"
)

func token(claims string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return strings.Join([]string{encode([]byte("{}")), encode([]byte(claims)), "signature"}, ".")
}

func TestLifetimesOfTokensAndCertificates(t *testing.T) {
	for text, want := range map[string]Lifetime{
		"":                             {},
		"opaque":                       {},
		"a.b.c":                        {},
		token(`{"exp":"soon"}`):        {},
		token(`{"iat":100}`):           {},
		token(`{"exp":200}`):           {End: time.Unix(200, 0)},
		token(`{"iat":100,"exp":200}`): {time.Unix(100, 0), time.Unix(200, 0)},
	} {
		if got := OfToken(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
	pem, _, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tls.crt")
	if err := os.WriteFile(file, pem, 0o600); err != nil {
		t.Fatal(err)
	}
	if l := OfCertificateFile(file); l.Begin.After(time.Now()) || l.End.Before(time.Now()) {
		t.Errorf("the certificate is valid from %s to %s", l.Begin, l.End)
	}
	for what, l := range map[string]Lifetime{"no file": OfCertificateFile(file + ".missing"),
		"no certificate": OfCertificate([]byte("x"))} {
		if l != (Lifetime{}) {
			t.Errorf("%s: got %v", what, l)
		}
	}
}

func TestMetricsReadTheLifetimesAtEachScrape(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	again, err := NewMetrics(registry)
	if err != nil || again != m {
		t.Fatalf("a second registration: %v", err)
	}
	end := int64(0)
	m.Watch("control-kubeconfig", func() Lifetime { return OfToken(token(fmt.Sprintf(`{"iat":7,"exp":%d}`, end))) })
	again.Watch("webhook-certificate", func() Lifetime { return Lifetime{End: time.Unix(9, 0)} })
	want := func(series string) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP machinist_credential_expiry_timestamp_seconds When a certificate or token of the process expires: control-kubeconfig, target-kubeconfig, webhook-certificate or metrics-certificate.
# TYPE machinist_credential_expiry_timestamp_seconds gauge
machinist_credential_expiry_timestamp_seconds{credential="webhook-certificate"} 9
`+series)); err != nil {
			t.Error(err)
		}
	}
	want("")
	end = 1000
	want(`machinist_credential_expiry_timestamp_seconds{credential="control-kubeconfig"} 1000
# HELP machinist_credential_issue_timestamp_seconds When a certificate or token of the process became valid.
# TYPE machinist_credential_issue_timestamp_seconds gauge
machinist_credential_issue_timestamp_seconds{credential="control-kubeconfig"} 7
`)
	(*Metrics)(nil).Watch("x", nil)
	other := prometheus.NewRegistry()
	other.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "machinist_credential_expiry_timestamp_seconds"}))
	if _, err := NewMetrics(other); err == nil {
		t.Error("NewMetrics() = nil although another metric has the name")
	}
}
