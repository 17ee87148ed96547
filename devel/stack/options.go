package stack

import (
	"io"
	"strings"

	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/internal/install"
)

// Options configure a Stack.
type Options struct {
	// Dir is the folder for logs, kubeconfigs and data. It is created if it does not exist. By default it is a temporary
	// folder, which Stop removes.
	Dir string
	// BinDir is the folder with machinist-manager and the programs of the provider and of its cloud. By default it is the
	// folder of the running program.
	BinDir string
	// Backend is the cloud and its provider. By default it is the simulated cloud.
	Backend Backend
	// SeparateTarget runs a second control plane as the target cluster. By default, one cluster is both the control
	// cluster and the target cluster.
	SeparateTarget bool
	// NoTarget starts the two processes without a target cluster.
	NoTarget bool
	// Namespace is the only namespace of the control cluster in which the two processes work. There, they have rights only
	// in this namespace and in SystemNamespace. By default, they work in all namespaces.
	Namespace string
	// SecretNamespaces are the only namespaces whose Secrets the provider may read. By default, it may read all.
	SecretNamespaces []string
	// Shards is the greatest number of shards for which the two processes have the right to the Leases. By default, one
	// shard has all namespaces.
	Shards int
	// Audit records every request to both clusters.
	Audit bool
	// CloudProxy, if set, is called with the address of the simulated cloud, and returns the address that the provider
	// uses.
	CloudProxy func(cloud string) string
	// WebhookProxy, if set, is called with the name of a program and the address of its webhook. It returns the address,
	// on localhost, that the API server uses for the webhook.
	WebhookProxy func(program, address string) string
	// ClusterApproves makes kube-controller-manager approve the client certificates of kubelets, for all bootstrap tokens.
	// By default, the provider approves them, for its machines only.
	ClusterApproves bool
	// Bare prepares the two processes without starting them, so that they can be started by hand.
	Bare bool
	// Metrics makes each process serve its metrics on a free loopback address without authentication. Stack.Metrics
	// returns the address. By default, no metrics are served.
	Metrics bool
	// ManagerArgs and ProviderArgs are additional flags of the manager and the provider.
	ManagerArgs, ProviderArgs []string
	// Env contains additional environment variables of both processes, in the form "name=value".
	Env []string
	// ExtraAPIServerArgs are additional flags of the control cluster's API server.
	ExtraAPIServerArgs []string
	// ExtraControllerManagerArgs are additional flags of every kube-controller-manager.
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

// providerArgs returns the flags of the provider that other processes do not have. args are the flags for its cloud.
func (o Options) providerArgs(args []string) []string {
	if o.ClusterApproves {
		args = append(args, "--approve-kubelet-csrs=false")
	}
	if o.SecretNamespaces != nil {
		args = append(args, "--secret-namespaces="+strings.Join(o.SecretNamespaces, ","))
	}
	return append(args, o.ProviderArgs...)
}
