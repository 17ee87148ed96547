package process

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	_ "machinist.dev/machinist/internal/platform/roots" // Images contain no root certificates.
)

// restConfig loads the configuration of a kubeconfig flag. It also returns the kubeconfig file, so that its credentials
// can be renewed. The file is nil for InCluster, because client-go renews the credentials of a pod.
func restConfig(flag, path, userAgent string, qps float32, burst int, log logr.Logger) (*rest.Config,
	*kubeconfig, error) {
	config, file, err := load(flag, path, log)
	if err != nil {
		return nil, nil, fmt.Errorf("--%s=%s: %w", flag, path, err)
	}
	config.UserAgent = userAgent
	warnings := ctrllog.KubeAPIWarningLoggerOptions{Deduplicate: true}
	config.WarningHandlerWithContext = ctrllog.NewKubeAPIWarningLogger(warnings)
	// A shared RateLimiter limits all clients together. The field QPS would limit each client separately.
	config.QPS, config.Burst = -1, 0
	if qps > 0 {
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	}
	return config, file, nil
}

func load(flag, path string, log logr.Logger) (*rest.Config, *kubeconfig, error) {
	if path == InCluster {
		config, err := rest.InClusterConfig()
		return config, nil, err
	}
	return readKubeconfig(flag, path, log)
}

// leaseConfig returns the configuration of the client that renews the Lease. Other traffic must not delay a renewal,
// so this client has its own connection and no rate limit. The timeout of this client leaves time for another attempt
// before the deadline.
func leaseConfig(control *rest.Config, renewDeadline time.Duration) *rest.Config {
	config := rest.CopyConfig(control)
	config.UserAgent += "/leader-election"
	config.RateLimiter = nil
	config.QPS = -1
	config.Timeout = max(renewDeadline/3, time.Second)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = strings.Join([]string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON}, ",")
	// client-go shares connections between configurations with the same credentials and dialer.
	config.Dial = (&net.Dialer{Timeout: config.Timeout, KeepAlive: 30 * time.Second}).DialContext
	return config
}

const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// leaderElectionNamespace returns the namespace of the Lease. The namespace of the pod is the default only in the
// control cluster. The namespace of a pod in another cluster may not exist there.
func (c *Config) leaderElectionNamespace() (string, error) {
	switch {
	case c.LeaderElectionNamespace != "":
		return c.LeaderElectionNamespace, nil
	case c.ControlKubeconfig == InCluster:
		content, err := os.ReadFile(podNamespaceFile)
		if err != nil {
			return "", fmt.Errorf("--leader-election-namespace is not set, and the namespace of the pod is not known: %w", err)
		}
		return strings.TrimSpace(string(content)), nil
	case c.Namespace != "":
		return c.Namespace, nil
	default:
		return "kube-system", nil
	}
}

// leaseName returns the name of the Lease. Each --namespace has its own Lease.
func (c *Config) leaseName() string {
	if c.Namespace == "" {
		return c.Name
	}
	return c.Name + "-" + c.Namespace
}
