package process

import (
	"time"

	"machinist.dev/machinist/internal/platform/reachability"
	"machinist.dev/machinist/internal/platform/sharding"
)

// Values of the kubeconfig flags that are not paths.
const (
	// InCluster takes the service account of the pod in which the process runs.
	InCluster = "in-cluster"
	// None says that there is no target cluster.
	None = "none"
)

// Config is what the user sets by flags. Nothing of it is read from the environment.
type Config struct {
	// Name is that of the process, such as "machinist-manager". It names its lease and is its user agent and field owner.
	Name string

	// ControlKubeconfig is the path of the kubeconfig of the control cluster, or InCluster.
	ControlKubeconfig string
	// TargetKubeconfig is the path of the kubeconfig of the target cluster, InCluster or None. It has no default.
	TargetKubeconfig string
	// Namespace restricts everything in the control cluster to one namespace; empty means all.
	Namespace string
	// ClusterID marks the instances of this installation at the cloud. Empty means the UID of the control cluster's
	// namespace kube-system, followed by "/" and Namespace if that is set.
	ClusterID string

	// Shards is among how many leaders the namespaces of the control cluster are divided; 0 and 1 mean one for all.
	Shards int
	// ShardIndex is the shard that this process serves, from 0; -1 if none was given, which several shards do not allow.
	ShardIndex int

	// LeaderElect can be switched off where there is certainly one process only.
	LeaderElect bool
	// LeaderElectionNamespace is where the lease and the record of the cluster id are, in the control cluster. Empty
	// means: the pod's namespace if ControlKubeconfig is InCluster, else Namespace, else kube-system.
	LeaderElectionNamespace string
	// LeaseDuration is how long other candidates wait after the last renewal that they saw.
	LeaseDuration time.Duration
	// RenewDeadline is how long the leader acts after the last renewal that succeeded.
	RenewDeadline time.Duration
	// RetryPeriod is the time between two renewals, and between two checks of a candidate.
	RetryPeriod time.Duration

	// HealthProbeBindAddress serves /healthz and /readyz; "0" or "" serves them nowhere. So with the next ones.
	HealthProbeBindAddress string
	// MetricsBindAddress serves /metrics.
	MetricsBindAddress string
	// MetricsSecure serves metrics by HTTPS and only to those that the control cluster authenticates and authorizes.
	MetricsSecure bool
	// MetricsCertDir holds tls.crt and tls.key for secure metrics; empty means a certificate made at start.
	MetricsCertDir string
	// PprofBindAddress serves /debug/pprof.
	PprofBindAddress string

	// ControlQPS and TargetQPS limit the requests per second of the whole process to each cluster; ControlBurst and
	// TargetBurst are how many may be made at once. A QPS of -1 is no limit.
	ControlQPS   float32
	ControlBurst int
	TargetQPS    float32
	TargetBurst  int

	// StatusCheckPeriod is the time between two checks whether the API servers answer.
	StatusCheckPeriod time.Duration
	// StatusCheckTimeout is the time within which two checks in a row fail when a cluster is unreachable.
	StatusCheckTimeout time.Duration

	// GracefulShutdownTimeout is how long the end of running work is waited for after a signal.
	GracefulShutdownTimeout time.Duration

	// LogLevel is error, info, debug, or a number: the greatest verbosity that is written (info is 0, debug is 1).
	LogLevel string
	// LogFormat is json or text.
	LogFormat string
}

// noShard is the ShardIndex of a process that was not given one.
const noShard = -1

// Shard returns the part of the namespaces that the process serves.
func (c *Config) Shard() sharding.Shard {
	if c.Shards <= 1 {
		return sharding.Shard{}
	}
	return sharding.Shard{Index: c.ShardIndex, Count: c.Shards}
}

// DefaultConfig returns the defaults of a process.
func DefaultConfig(name string) *Config {
	return &Config{
		Name:                    name,
		ControlKubeconfig:       InCluster,
		Shards:                  1,
		ShardIndex:              noShard,
		LeaderElect:             true,
		LeaseDuration:           15 * time.Second,
		RenewDeadline:           10 * time.Second,
		RetryPeriod:             time.Second,
		HealthProbeBindAddress:  ":8081",
		MetricsBindAddress:      ":8443",
		MetricsSecure:           true,
		PprofBindAddress:        "0",
		ControlQPS:              -1,
		ControlBurst:            100,
		TargetQPS:               -1,
		TargetBurst:             100,
		StatusCheckPeriod:       reachability.DefaultPeriod,
		StatusCheckTimeout:      reachability.DefaultTimeout,
		GracefulShutdownTimeout: 10 * time.Second,
		LogLevel:                "info",
		LogFormat:               "json",
	}
}
