package process

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"machinist.dev/machinist/internal/platform/process/fence"
	"machinist.dev/machinist/internal/platform/sharding"
)

// AddFlags registers a flag for every field except Name and the shards. The current values of the fields are the
// defaults.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	c.AddProcessFlags(fs)
	fs.StringVar(&c.TargetKubeconfig, "target-kubeconfig", c.TargetKubeconfig,
		"Path of the kubeconfig of the target cluster, in which the machines become Nodes, or \"in-cluster\", or \"none\" if there is no such cluster. Required.")
	fs.StringVar(&c.Namespace, "namespace", c.Namespace,
		"The only namespace of the control cluster in which the process works. Empty means all.")
	fs.StringVar(&c.ClusterID, "cluster-id", c.ClusterID,
		"ID that marks the instances of this installation in the cloud. It must never change. By default, the ID is the UID of the namespace kube-system in the control cluster. With --namespace, the default is this UID, a slash and the namespace.")
	fs.Float32Var(&c.TargetQPS, "target-qps", c.TargetQPS,
		"Greatest number of requests per second from this process to the target cluster. -1 means no limit in the process.")
	fs.IntVar(&c.TargetBurst, "target-burst", c.TargetBurst,
		"Number of requests to the target cluster that may be sent at once, above --target-qps.")
}

// AddProcessFlags registers the flags of a process that works only in the control cluster and does not manage
// instances.
func (c *Config) AddProcessFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.ControlKubeconfig, "control-kubeconfig", c.ControlKubeconfig,
		"Path of the kubeconfig of the control cluster, which contains the Machines, or \"in-cluster\" for the pod's service account.")

	fs.BoolVar(&c.LeaderElect, "leader-elect", c.LeaderElect,
		"Act only while holding a Lease. Disable it only if it is certain that there is just one process.")
	fs.StringVar(&c.LeaderElectionNamespace, "leader-election-namespace", c.LeaderElectionNamespace,
		"Namespace of the control cluster that contains the Lease and the record of the cluster ID. Empty means the pod's namespace if --control-kubeconfig is \"in-cluster\", else --namespace, else kube-system.")
	fs.DurationVar(&c.LeaseDuration, "leader-election-lease-duration", c.LeaseDuration,
		"How long other candidates wait after the last renewal of the Lease that they observed. At least one second more than the renew deadline, and at most five minutes.")
	fs.DurationVar(&c.RenewDeadline, "leader-election-renew-deadline", c.RenewDeadline,
		"How long the leader acts after its last successful renewal of the Lease. After that, the process ends.")
	fs.DurationVar(&c.RetryPeriod, "leader-election-retry-period", c.RetryPeriod,
		"Time between two renewals of the Lease, and between two attempts to acquire it.")

	fs.StringVar(&c.HealthProbeBindAddress, "health-probe-bind-address", c.HealthProbeBindAddress,
		"Address that serves /healthz and /readyz. \"0\" disables it.")
	fs.StringVar(&c.MetricsBindAddress, "metrics-bind-address", c.MetricsBindAddress,
		"Address that serves /metrics. \"0\" disables it.")
	fs.BoolVar(&c.MetricsSecure, "metrics-secure", c.MetricsSecure,
		"Serve metrics by HTTPS, and only to users that the control cluster authenticates and authorizes to get the path /metrics.")
	fs.StringVar(&c.MetricsCertDir, "metrics-cert-dir", c.MetricsCertDir,
		"Folder with tls.crt and tls.key for --metrics-secure. Empty means a self-signed certificate that is created at start.")
	fs.StringVar(&c.PprofBindAddress, "pprof-bind-address", c.PprofBindAddress,
		"Address that serves /debug/pprof without authentication. \"0\" disables it.")

	fs.Float32Var(&c.ControlQPS, "control-qps", c.ControlQPS,
		"Greatest number of requests per second from this process to the control cluster. -1 means no limit in the process; the API server has its own.")
	fs.IntVar(&c.ControlBurst, "control-burst", c.ControlBurst,
		"Number of requests to the control cluster that may be sent at once, above --control-qps.")

	fs.DurationVar(&c.StatusCheckPeriod, "apiserver-check-period", c.StatusCheckPeriod,
		"Time between two checks whether the API servers of both clusters answer.")
	fs.DurationVar(&c.StatusCheckTimeout, "apiserver-check-timeout", c.StatusCheckTimeout,
		"How long an API server may not answer before its cluster counts as unreachable. Two checks within this time must fail. While the cluster is unreachable, no machines are created, replaced or drained.")

	fs.DurationVar(&c.GracefulShutdownTimeout, "graceful-shutdown-timeout", c.GracefulShutdownTimeout,
		"How long to wait for work in progress after SIGTERM or SIGINT.")
	fs.StringVar(&c.LogLevel, "log-level", c.LogLevel,
		"What to log: error, info, debug, or the greatest verbosity as a number.")
	fs.StringVar(&c.LogFormat, "log-format", c.LogFormat, "Format of the log: json or text.")
}

// AddShardFlags registers the flags of a process that runs once per shard.
func (c *Config) AddShardFlags(fs *pflag.FlagSet) {
	fs.IntVar(&c.Shards, "shards", c.Shards,
		"Number of leaders among which the namespaces of the control cluster are divided. It must be the same for all processes.")
	fs.IntVar(&c.ShardIndex, "shard", c.ShardIndex,
		"Shard that this process serves, from 0 to --shards minus 1. Required with more than one shard. -1 means not set.")
}

// clusterID matches cluster IDs that are valid in the tags of every cloud without quoting.
var clusterID = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?$`)

// Validate returns an error that names each flag with an invalid value.
func (c *Config) Validate() error {
	var errs []error
	refuse := func(flag string, value any, why string) {
		if value == "" {
			errs = append(errs, fmt.Errorf("--%s is not set: %s", flag, why))
			return
		}
		errs = append(errs, fmt.Errorf("--%s=%v: %s", flag, value, why))
	}
	if c.ControlKubeconfig == "" || c.ControlKubeconfig == NoCluster {
		refuse("control-kubeconfig", c.ControlKubeconfig,
			`give the path of the control cluster's kubeconfig, or "in-cluster" in a pod of that cluster`)
	}
	if c.TargetKubeconfig == "" {
		refuse("target-kubeconfig", c.TargetKubeconfig,
			`give the path of the kubeconfig of the cluster in which the machines become Nodes, "in-cluster" in a pod of that cluster, or "none" if there is no such cluster`)
	}
	for _, f := range []struct{ flag, value string }{
		{"namespace", c.Namespace},
		{"leader-election-namespace", c.LeaderElectionNamespace},
	} {
		if problems := validation.IsDNS1123Label(f.value); f.value != "" && len(problems) > 0 {
			refuse(f.flag, f.value, strings.Join(problems, "; "))
		}
	}
	if c.ClusterID != "" && !clusterID.MatchString(c.ClusterID) {
		refuse("cluster-id", c.ClusterID, "must be 1 to 128 letters, digits and . _ / -, with a letter or digit at both ends")
	}
	if c.LeaderElect {
		c.validateLease(refuse)
	}
	c.validateShard(refuse)
	for _, f := range []struct{ flag, address string }{
		{"health-probe-bind-address", c.HealthProbeBindAddress},
		{"metrics-bind-address", c.MetricsBindAddress},
		{"pprof-bind-address", c.PprofBindAddress},
	} {
		if isDisabled(f.address) {
			continue
		}
		if _, _, err := net.SplitHostPort(f.address); err != nil {
			refuse(f.flag, f.address, `must be host:port, :port, or "0": `+err.Error())
		}
	}
	for _, f := range []struct {
		cluster string
		qps     float32
		burst   int
	}{{"control", c.ControlQPS, c.ControlBurst}, {"target", c.TargetQPS, c.TargetBurst}} {
		switch {
		case f.qps == -1:
		case !(f.qps > 0):
			refuse(f.cluster+"-qps", f.qps, "must be more than 0, or -1 for no limit")
		case f.burst < 1:
			refuse(f.cluster+"-burst", f.burst, "must be at least 1")
		}
	}
	if c.StatusCheckPeriod <= 0 {
		refuse("apiserver-check-period", c.StatusCheckPeriod, "must be more than 0")
	}
	if c.StatusCheckTimeout <= 0 {
		refuse("apiserver-check-timeout", c.StatusCheckTimeout, "must be more than 0")
	}
	if c.GracefulShutdownTimeout <= 0 {
		refuse("graceful-shutdown-timeout", c.GracefulShutdownTimeout, "must be more than 0")
	}
	if _, err := verbosity(c.LogLevel); err != nil {
		refuse("log-level", c.LogLevel, err.Error())
	}
	if c.LogFormat != "json" && c.LogFormat != "text" {
		refuse("log-format", c.LogFormat, "must be json or text")
	}
	return errors.Join(errs...)
}

// validateShard rejects flags from which the shard of this process is not clear.
func (c *Config) validateShard(refuse func(flag string, value any, why string)) {
	switch last := c.Shards - 1; {
	case c.Shards < 0 || c.Shards > sharding.MaxShards:
		refuse("shards", c.Shards, fmt.Sprintf("must be from 1 to %d", sharding.MaxShards))
	case last <= 0 && c.ShardIndex > 0:
		refuse("shard", c.ShardIndex, fmt.Sprintf("needs --shards, which is %d: set it to the same number for all processes, "+
			"greater than %d", c.Shards, c.ShardIndex))
	case last <= 0 && c.ShardIndex < noShard:
		refuse("shard", c.ShardIndex, "must be 0 or more, and less than --shards")
	case last <= 0:
	case c.Namespace != "":
		refuse("shards", c.Shards, "cannot be combined with --namespace, because a single namespace cannot be divided among shards")
	case !c.LeaderElect:
		refuse("shards", c.Shards, "needs --leader-elect, because Leases keep the shards apart")
	case c.ShardIndex == noShard:
		refuse("shard", "", fmt.Sprintf("with --shards=%d, set the shard that this process serves, from 0 to %d, and "+
			"start one process for each shard", c.Shards, last))
	case c.ShardIndex < 0 || c.ShardIndex > last:
		refuse("shard", c.ShardIndex, fmt.Sprintf("must be from 0 to %d, because shards are counted from 0 and --shards=%d",
			last, c.Shards))
	}
}

// validateLease rejects durations with which two processes could lead. Candidates read the lease duration in whole
// seconds.
func (c *Config) validateLease(refuse func(flag string, value any, why string)) {
	if c.RetryPeriod <= 0 {
		refuse("leader-election-retry-period", c.RetryPeriod, "must be more than 0")
	}
	if 2*c.RenewDeadline < 3*c.RetryPeriod || c.RenewDeadline <= 0 {
		refuse("leader-election-renew-deadline", c.RenewDeadline,
			fmt.Sprintf("must be at least one and a half times --leader-election-retry-period=%s", c.RetryPeriod))
	}
	if c.LeaseDuration.Truncate(time.Second) < c.RenewDeadline+time.Second {
		refuse("leader-election-lease-duration", c.LeaseDuration,
			fmt.Sprintf("must be at least a second more than --leader-election-renew-deadline=%s", c.RenewDeadline))
	}
	if c.LeaseDuration > fence.LongestDuration {
		refuse("leader-election-lease-duration", c.LeaseDuration,
			fmt.Sprintf("must be at most %s, because other candidates ignore longer durations", fence.LongestDuration))
	}
}

func isDisabled(address string) bool { return address == "" || address == "0" }

// verbosity returns the maximum logr verbosity of a log level, or -1 if only errors are logged.
func verbosity(level string) (int, error) {
	switch level {
	case "error":
		return -1, nil
	case "info":
		return 0, nil
	case "debug":
		return 1, nil
	}
	v, err := strconv.ParseUint(level, 10, 7)
	if err != nil {
		return 0, errors.New("must be error, info, debug, or a number from 0 to 127")
	}
	return int(v), nil
}
