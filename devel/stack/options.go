package stack

import (
	"io"

	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/internal/install"
)

// Options say what a Stack consists of.
type Options struct {
	// Dir is the folder for everything: logs, kubeconfigs, data. It is made if needed; by default it is a temporary one,
	// which Stop removes.
	Dir string
	// BinDir is where machinist-manager, the provider's program and that of its cloud are. By default the folder of the
	// running program.
	BinDir string
	// Backend is the cloud, with its provider. By default it is the simulated cloud.
	Backend Backend
	// SeparateTarget runs a second control plane as the target cluster. By default one cluster is both.
	SeparateTarget bool
	// NoTarget tells the two processes that there is no target cluster.
	NoTarget bool
	// Namespace is the only one of the control cluster that the two processes check, and then the only one beside
	// SystemNamespace in which they may do anything there. By default they check all.
	Namespace string
	// Shards is the greatest number of shards for which the two processes have the right to the Leases. By default it is
	// one for all namespaces.
	Shards int
	// Audit records every request to both clusters.
	Audit bool
	// CloudProxy, if set, is reported the address of the simulated cloud and returns the one that the provider is given.
	CloudProxy func(cloud string) string
	// WebhookProxy, if set, is reported the name of a program and the address on which its process serves its webhook,
	// and returns the address, of localhost, at which the API server is to look for it.
	WebhookProxy func(program, address string) string
	// ClusterApproves lets kube-controller-manager approve kubelets' client certificates, whatever token asks for them,
	// and not the provider. By default the provider does, for its machines only.
	ClusterApproves bool
	// Bare prepares the two processes and starts neither, for running them by hand.
	Bare bool
	// Metrics has every process of ours serve its metrics on a free address of loopback, to everybody on this machine:
	// Stack.Metrics tells where. By default there are none served.
	Metrics bool
	// ManagerArgs and ProviderArgs are appended to those chosen here.
	ManagerArgs, ProviderArgs []string
	// Env has environment variables of the form "name=value" for both, beside those of this process.
	Env []string
	// ExtraAPIServerArgs are appended to those of the control cluster's API server.
	ExtraAPIServerArgs []string
	// ExtraControllerManagerArgs are appended to those of every kube-controller-manager.
	ExtraControllerManagerArgs []string
	// Output receives a line per step. By default nothing is written.
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

// providerArgs are the flags of the provider, less those that every process of ours has. args are those about its
// cloud.
func (o Options) providerArgs(args []string) []string {
	if o.ClusterApproves {
		args = append(args, "--approve-kubelet-csrs=false")
	}
	return append(args, o.ProviderArgs...)
}
