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

// explainUnauthorized adds an explanation to an error with the status 401 if the credentials in the kubeconfig file
// have expired. The API server itself does not explain why it rejected the credentials.
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

// lifetimeOf returns the lifetime of the credential in a configuration, and the kind of this credential. If the
// lifetime is not known, it returns "" as the kind.
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

// watchExpiry exports the lifetimes of the credentials in the kubeconfig files and of the metrics certificate. A pod's
// own credentials are not exported, because its kubelet renews them.
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
