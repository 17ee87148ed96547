package stack

import (
	"io"
	"strings"

	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/internal/install"
)

// Options configure a Stack.
type Options struct {
	// Dir is the folder for logs, kubeconfigs and data. The folder is created if it does not exist. By default it is
	// a temporary folder, which Stop removes.
	Dir string
	// BinDir is the folder with the programs of the manager, the provider and its cloud. By default it is the folder of
	// the running program.
	BinDir string
	// Backend is the cloud and its provider. The default is the simulated cloud.
	Backend Backend
	// SeparateTarget runs a second control plane as the target cluster. By default, one cluster is both the control
	// cluster and the target cluster.
	SeparateTarget bool
	// NoTarget starts the two processes without a target cluster.
	NoTarget bool
	// Namespace is the only namespace of the control cluster in which the two processes work. In the control cluster,
	// they have permissions only in this namespace and in SystemNamespace. By default, they work in all namespaces.
	Namespace string
	// SecretNamespaces are the only namespaces whose Secrets the provider may read. By default, the provider may read
	// the Secrets of all namespaces.
	SecretNamespaces []string
	// RemediationKinds are the kinds of remediations that the manager may create in the target cluster, such as
	// SelfNodeRemediation.self-node-remediation.medik8s.io.
	RemediationKinds []string
	// Shards is the maximum number of shards for which the two processes get permissions for Leases. By default, one
	// shard contains all namespaces.
	Shards int
	// Audit makes the API servers of both clusters log every request.
	Audit bool
	// CloudProxy, if set, is called with the address of the simulated cloud, and returns the address that the
	// provider uses.
	CloudProxy func(cloud string) string
	// WebhookProxy, if set, is called with the name of a program and the address of its webhook. It returns the address
	// on localhost that the API server uses for the webhook.
	WebhookProxy func(program, address string) string
	// ClusterApproves is true if kube-controller-manager must approve the client certificates of kubelets, for all
	// bootstrap tokens. By default, the provider approves only the certificates of its own machines.
	ClusterApproves bool
	// PrepareOnly is true if Start must prepare the two processes without starting them.
	PrepareOnly bool
	// Metrics makes each process serve its metrics on a free loopback address without authentication. Stack.Metrics
	// returns the address.
	Metrics bool
	// ManagerArgs and ProviderArgs are additional flags of the manager and the provider.
	ManagerArgs, ProviderArgs []string
	// Env contains additional environment variables of both processes, in the form "name=value".
	Env []string
	// ExtraAPIServerArgs are additional flags of the control cluster's API server.
	ExtraAPIServerArgs []string
	// ExtraControllerManagerArgs are additional flags of every kube-controller-manager.
	ExtraControllerManagerArgs []string
	// Output receives a line for each step. By default nothing is written.
	Output io.Writer
}

func (o Options) controlOptions(dir string) controlplane.Options {
	return controlplane.Options{
		Dir: dir, Audit: o.Audit, Output: o.Output, ExtraAPIServerArgs: o.ExtraAPIServerArgs,
		ExtraControllerManagerArgs: o.ExtraControllerManagerArgs,
		Prepare:                    install.Install,
		WithControllerManager:      true, WithScheduler: true, ApproveNodeClientCSRs: o.ClusterApproves,
	}
}

func (o Options) managerArgs() []string {
	if len(o.RemediationKinds) == 0 {
		return o.ManagerArgs
	}
	return append([]string{"--remediation-kinds=" + strings.Join(o.RemediationKinds, ",")}, o.ManagerArgs...)
}

// providerArgs returns the flags that only the provider has. The parameter args contains the flags for its cloud.
func (o Options) providerArgs(args []string) []string {
	if o.ClusterApproves {
		args = append(args, "--approve-kubelet-csrs=false")
	}
	if o.SecretNamespaces != nil {
		args = append(args, "--secret-namespaces="+strings.Join(o.SecretNamespaces, ","))
	}
	return append(args, o.ProviderArgs...)
}
