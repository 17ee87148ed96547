package process

import (
	"time"

	"machinist.dev/machinist/internal/platform/reachability"
	"machinist.dev/machinist/internal/platform/sharding"
)

// These are values of the kubeconfig flags that are not paths.
const (
	// InCluster means the service account of the pod in which the process runs.
	InCluster = "in-cluster"
	// NoCluster means that there is no target cluster.
	NoCluster = "none"
)

// Config contains the settings that a user sets with flags.
type Config struct {
	// Name is the name of the process, such as "machinist-manager". This name is also the name of the process's
	// Lease, user agent and field owner.
	Name string

	// ControlKubeconfig is the path of the kubeconfig of the control cluster, or InCluster.
	ControlKubeconfig string
	// TargetKubeconfig is the path of the kubeconfig of the target cluster, InCluster or NoCluster. TargetKubeconfig
	// has no default.
	TargetKubeconfig string
	// Namespace is the only namespace of the control cluster in which the process works. Empty means all namespaces.
	Namespace string
	// ClusterID marks the instances of this installation in the cloud. If ClusterID is empty, the process uses the UID
	// of the namespace kube-system in the control cluster. If Namespace is also set, the process uses
	// <UID>/<Namespace>.
	ClusterID string

	// Shards is the number of leaders among which the namespaces of the control cluster are divided. With 0 or 1, one
	// leader serves all namespaces.
	Shards int
	// ShardIndex is the shard that this process serves, counted from 0. ShardIndex is -1 if it was not set, which is
	// only allowed with one shard.
	ShardIndex int

	// LeaderElect means that the process acts only while it holds a Lease. Disable leader election only if there is
	// exactly one process.
	LeaderElect bool
	// LeaderElectionNamespace is the namespace of the control cluster that contains the Lease and the record of the
	// cluster ID. If LeaderElectionNamespace is empty and ControlKubeconfig is InCluster, the process uses the pod's
	// namespace. If LeaderElectionNamespace is empty with another ControlKubeconfig, the process uses the field
	// Namespace, or kube-system if that field is also empty.
	LeaderElectionNamespace string
	// LeaseDuration is how long candidates wait after the last renewal that they observed.
	LeaseDuration time.Duration
	// RenewDeadline is how long the leader may act after its last successful renewal of the Lease.
	RenewDeadline time.Duration
	// RetryPeriod is the time between two renewals by the leader, and between two attempts by a candidate.
	RetryPeriod time.Duration

	// HealthProbeBindAddress is the address that serves /healthz and /readyz. As for the other addresses, "0" or ""
	// disables the server.
	HealthProbeBindAddress string
	// MetricsBindAddress is the address that serves /metrics.
	MetricsBindAddress string
	// MetricsSecure serves metrics over HTTPS, and only to clients that the control cluster authenticates and
	// authorizes.
	MetricsSecure bool
	// MetricsCertDir is the directory with tls.crt and tls.key for MetricsSecure. If MetricsCertDir is empty, the
	// process creates a certificate at startup.
	MetricsCertDir string
	// PprofBindAddress is the address that serves /debug/pprof.
	PprofBindAddress string

	// ControlQPS and TargetQPS limit the requests per second of the whole process to each cluster. ControlBurst and
	// TargetBurst are the numbers of requests that may be sent at once. A QPS of -1 means no limit.
	ControlQPS   float32
	ControlBurst int
	TargetQPS    float32
	TargetBurst  int

	// StatusCheckPeriod is the time between two checks whether an API server answers.
	StatusCheckPeriod time.Duration
	// StatusCheckTimeout is the time within which an unreachable cluster fails two consecutive checks.
	StatusCheckTimeout time.Duration

	// GracefulShutdownTimeout is how long the process waits for running work to end after a signal.
	GracefulShutdownTimeout time.Duration

	// LogLevel is error, info, debug, or a number. A number is the maximum verbosity that is logged. Info is 0,
	// debug is 1.
	LogLevel string
	// LogFormat is json or text.
	LogFormat string
}

const noShard = -1

// Shard returns the set of namespaces that the process serves.
func (c *Config) Shard() sharding.Shard {
	if c.Shards <= 1 {
		return sharding.Shard{}
	}
	return sharding.Shard{Index: c.ShardIndex, Count: c.Shards}
}

// DefaultConfig returns the defaults of a process with this name.
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
