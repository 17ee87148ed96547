// Package expiry exports when the credentials and certificates of a process expire, so that administrators can renew
// them in time.
package expiry

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certutil "k8s.io/client-go/util/cert"
)

// Lifetime is the period in which a credential is valid. A zero time means that the time is unknown.
type Lifetime struct{ Begin, End time.Time }

// OfCertificate returns the lifetime of the first certificate in a PEM file, or the zero value if there is none.
func OfCertificate(pem []byte) Lifetime {
	certificates, err := certutil.ParseCertsPEM(pem)
	if err != nil || len(certificates) == 0 {
		return Lifetime{}
	}
	return Lifetime{certificates[0].NotBefore, certificates[0].NotAfter}
}

// OfCertificateFile returns the lifetime of the first certificate in a file.
func OfCertificateFile(path string) Lifetime {
	content, err := os.ReadFile(path)
	if err != nil {
		return Lifetime{}
	}
	return OfCertificate(content)
}

// OfToken returns the lifetime in the claims "iat" and "exp" of a JSON Web Token. It does not verify the token, because
// the lifetime is only displayed.
func OfToken(token string) Lifetime {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return Lifetime{}
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return Lifetime{}
	}
	var times struct {
		Issued  int64 `json:"iat"`
		Expires int64 `json:"exp"`
	}
	if err := json.Unmarshal(claims, &times); err != nil || times.Expires <= 0 {
		return Lifetime{}
	}
	l := Lifetime{End: time.Unix(times.Expires, 0)}
	if times.Issued > 0 {
		l.Begin = time.Unix(times.Issued, 0)
	}
	return l
}

// Metrics exports the lifetimes of credentials. Each scrape reads the lifetimes again, because credentials are renewed.
// A nil *Metrics exports nothing.
type Metrics struct {
	expires, issued *prometheus.Desc

	mu   sync.Mutex
	read map[string]func() Lifetime
}

// NewMetrics registers the metrics. If the metrics are already registered, NewMetrics returns the existing metrics.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	labels := []string{"credential"}
	m := &Metrics{read: map[string]func() Lifetime{},
		expires: prometheus.NewDesc("machinist_credential_expiry_timestamp_seconds",
			"When a certificate or token of the process expires: control-kubeconfig, target-kubeconfig, webhook-certificate or metrics-certificate.",
			labels, nil),
		issued: prometheus.NewDesc("machinist_credential_issue_timestamp_seconds",
			"When a certificate or token of the process became valid.", labels, nil),
	}
	err := registerer.Register(m)
	if err == nil {
		return m, nil
	}
	if registered, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := registered.ExistingCollector.(*Metrics); ok {
			return existing, nil
		}
	}
	return nil, fmt.Errorf("register the metrics of credentials: %w", err)
}

// Watch exports the expiry time of a credential in the metrics. A credential without an expiry time is not exported.
func (m *Metrics) Watch(credential string, read func() Lifetime) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read[credential] = read
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- m.expires
	descs <- m.issued
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	export := func(desc *prometheus.Desc, at time.Time, credential string) {
		if !at.IsZero() {
			metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(at.Unix()), credential)
		}
	}
	for credential, read := range m.read {
		lifetime := read()
		if lifetime.End.IsZero() {
			continue
		}
		export(m.expires, lifetime.End, credential)
		export(m.issued, lifetime.Begin, credential)
	}
}
