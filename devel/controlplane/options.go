package controlplane

import (
	"context"
	"io"
	"net"

	"k8s.io/client-go/rest"
)

// Options configure a control plane. The zero value means etcd and kube-apiserver in a temporary folder.
type Options struct {
	// Dir is the folder for keys, data, logs and kubeconfigs. The folder must be empty or new, and Stop does not remove
	// it. If Dir is unset, Start creates a temporary folder, which Stop removes.
	Dir string

	// WithControllerManager runs kube-controller-manager with all its controllers, including those for bootstrap
	// tokens. Without kube-controller-manager, service accounts are not created automatically, so the API server
	// admits pods without a service account.
	WithControllerManager bool

	// WithScheduler runs kube-scheduler.
	WithScheduler bool

	// Address, if set, is an address of this machine at which pods of a real node reach the API server. The address
	// must not be a loopback address. The address becomes the endpoint of the Service kubernetes, and the API
	// server's certificate is valid for the address. The API server then listens on all addresses, so use it only in
	// a separate network namespace.
	Address net.IP

	// ServerAddresses are additional addresses at which virtual machines reach the API server, such as 10.0.2.2 in the
	// user network of QEMU, or a proxy for Endpoint. The API server's certificate is also valid for these addresses.
	// With ServerAddresses, the API server connects to kubelets at their internal addresses.
	ServerAddresses []net.IP

	// Audit makes the API server log every request at level Metadata to ControlPlane.AuditLog. The API server writes
	// the log line before it answers.
	Audit bool

	// ApproveNodeClientCSRs makes kube-controller-manager approve the requests of kubelets for client certificates,
	// both the first request with a bootstrap token and renewals. If the option is false, another program must
	// approve these requests. The option requires WithControllerManager.
	ApproveNodeClientCSRs bool

	// ExtraAPIServerArgs and ExtraControllerManagerArgs are additional flags, such as "--min-request-timeout=5" or
	// "--node-monitor-grace-period=6s". These flags take precedence over the flags of this package.
	ExtraAPIServerArgs         []string
	ExtraControllerManagerArgs []string

	// Prepare is called with the administrator's configuration when the API server is ready, before
	// kube-controller-manager starts. kube-controller-manager looks for new kinds only every 30 seconds. Until that
	// search, kube-controller-manager does not garbage-collect objects of new kinds.
	Prepare func(context.Context, *rest.Config) error

	// Output receives a line for each step of Start, and when a process ends unexpectedly. By default nothing is
	// written.
	Output io.Writer
}
