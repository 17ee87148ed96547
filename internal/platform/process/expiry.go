package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"machinist.dev/machinist/internal/platform/expiry"
)

// explainUnauthorized adds the expiry of the credentials to an error with the status 401. The API server does not
// explain why it rejected the credentials.
func (k *kubeconfig) explainUnauthorized(err error) error {
	if k == nil {
		return err
	}
	config, _, missing := k.current()
	if missing != nil {
		return err
	}
	what, lifetime := lifetimeOf(config)
	if what == "" || time.Now().Before(lifetime.End) {
		return fmt.Errorf("%w: the credentials in --%s=%s", err, k.flag, k.path)
	}
	return fmt.Errorf("%w: the %s in --%s=%s expired at %s: renew it", err, what, k.flag, k.path,
		lifetime.End.UTC().Format(time.RFC3339))
}

// lifetimeOf returns the kind and the lifetime of the credential in a configuration. The kind is "" if the lifetime is
// unknown.
func lifetimeOf(config *rest.Config) (what string, l expiry.Lifetime) {
	certificate := config.CertData
	if len(certificate) == 0 && config.CertFile != "" {
		certificate, _ = os.ReadFile(config.CertFile)
	}
	if l = expiry.OfCertificate(certificate); !l.End.IsZero() {
		return "client certificate", l
	}
	token := config.BearerToken
	if config.BearerTokenFile != "" {
		if content, err := os.ReadFile(config.BearerTokenFile); err == nil {
			token = strings.TrimSpace(string(content))
		}
	}
	if l = expiry.OfToken(token); !l.End.IsZero() {
		return "token", l
	}
	return "", expiry.Lifetime{}
}

// watchExpiry exports the lifetimes of the credentials in the kubeconfig files and of the metrics certificate. The
// kubelet renews a pod's own credentials, so these are not exported.
func (p *Process) watchExpiry() error {
	metrics, err := expiry.NewMetrics(p.options.Registerer)
	if err != nil {
		return err
	}
	for name, cluster := range map[string]*Cluster{"control-kubeconfig": p.control, "target-kubeconfig": p.target} {
		if cluster == nil || cluster.kubeconfig == nil {
			continue
		}
		metrics.Watch(name, func() expiry.Lifetime {
			config, _, err := cluster.kubeconfig.current()
			if err != nil {
				return expiry.Lifetime{}
			}
			_, l := lifetimeOf(config)
			return l
		})
	}
	if dir := p.config.MetricsCertDir; dir != "" && p.config.MetricsSecure {
		metrics.Watch("metrics-certificate", func() expiry.Lifetime {
			return expiry.OfCertificateFile(filepath.Join(dir, "tls.crt"))
		})
	}
	return nil
}
