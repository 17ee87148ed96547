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

	_ "machinist.dev/machinist/internal/platform/roots" // For images, whose system has none.
)

// restConfig loads the access to a cluster that a kubeconfig flag names. There is no fallback. The file is nil where
// there is none whose credentials may be renewed: client-go reads those of a pod again itself.
func restConfig(flag, path, userAgent string, qps float32, burst int, log logr.Logger) (*rest.Config,
	*kubeconfig, error) {
	config, file, err := load(flag, path, log)
	if err != nil {
		return nil, nil, fmt.Errorf("--%s=%s: %w", flag, path, err)
	}
	config.UserAgent = userAgent
	warnings := ctrllog.KubeAPIWarningLoggerOptions{Deduplicate: true}
	config.WarningHandlerWithContext = ctrllog.NewKubeAPIWarningLogger(warnings)
	// With the limit in QPS alone, every client of a kind would have one of its own.
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

// leaseConfig returns how the lease is renewed: on a connection of its own and without a limit of rate, so that no
// other traffic delays a renewal, and with a timeout that leaves time for another try before the deadline.
func leaseConfig(control *rest.Config, renewDeadline time.Duration) *rest.Config {
	config := rest.CopyConfig(control)
	config.UserAgent += "/leader-election"
	config.RateLimiter = nil
	config.QPS = -1
	config.Timeout = max(renewDeadline/3, time.Second)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = strings.Join([]string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON}, ",")
	// client-go shares connections between configurations that have the same credentials and the same dialer.
	config.Dial = (&net.Dialer{Timeout: config.Timeout, KeepAlive: 30 * time.Second}).DialContext
	return config
}

// podNamespaceFile is where Kubernetes tells a pod its namespace.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// leaderElectionNamespace returns where the lease is. The pod's namespace counts only if the pod runs in the control
// cluster: elsewhere it means nothing there.
func (c *Config) leaderElectionNamespace() (string, error) {
	switch {
	case c.LeaderElectionNamespace != "":
		return c.LeaderElectionNamespace, nil
	case c.ControlKubeconfig == InCluster:
		content, err := os.ReadFile(podNamespaceFile)
		if err != nil {
			return "", fmt.Errorf("--leader-election-namespace is not set, and the pod's own is not known: %w", err)
		}
		return strings.TrimSpace(string(content)), nil
	case c.Namespace != "":
		return c.Namespace, nil
	default:
		return "kube-system", nil
	}
}

// leaseName returns the name of the lease. Processes for different namespaces do not stand in each other's way.
func (c *Config) leaseName() string {
	if c.Namespace == "" {
		return c.Name
	}
	return c.Name + "-" + c.Namespace
}
