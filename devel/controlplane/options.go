package controlplane

import (
	"context"
	"io"
	"net"

	"k8s.io/client-go/rest"
)

// Options configure a control plane. The zero value means etcd and kube-apiserver in a temporary folder.
type Options struct {
	// Dir is the folder for keys, data, logs and kubeconfigs. It is created if it does not exist, and must be empty. Stop
	// does not remove it. By default it is a temporary folder, which Stop removes.
	Dir string

	// WithControllerManager runs kube-controller-manager with all its controllers, including the two controllers for
	// bootstrap tokens. Without this option, service accounts are not created automatically, so the API server admits pods
	// without a service account.
	WithControllerManager bool

	// WithScheduler runs kube-scheduler.
	WithScheduler bool

	// Address, if set, is an address of this machine that pods of a real node use to reach the API server. It must not be
	// a loopback address. This address becomes the endpoint of the service kubernetes. The API server's certificate is
	// valid for this address and for loopback. The API server then listens on all addresses, so use it only in a separate
	// network namespace.
	Address net.IP

	// ServerAddresses are additional addresses that virtual machines use to reach the API server. The API server's
	// certificate is also valid for these addresses. An example is 10.0.2.2 in the user network of QEMU, or the address of
	// a proxy for Endpoint. If they are set, the API server connects to kubelets at their internal addresses.
	ServerAddresses []net.IP

	// Audit makes the API server write every request to ControlPlane.AuditLog before it answers it, at level Metadata.
	Audit bool

	// ApproveNodeClientCSRs makes kube-controller-manager approve the requests of kubelets for client certificates: the
	// first request, which uses a bootstrap token, and each renewal. Without this option, the requests stay pending until
	// another approver approves them. It has no effect without WithControllerManager.
	ApproveNodeClientCSRs bool

	// ExtraAPIServerArgs and ExtraControllerManagerArgs are flags that follow those of this package, such as
	// "--min-request-timeout=5" or "--node-monitor-grace-period=6s". If a flag accepts one value only, its last occurrence
	// takes precedence.
	ExtraAPIServerArgs         []string
	ExtraControllerManagerArgs []string

	// Prepare is called with the administrator's configuration when the API server is ready, before
	// kube-controller-manager starts. kube-controller-manager looks for new kinds only every 30 seconds, and until
	// then it does not collect garbage of these kinds.
	Prepare func(context.Context, *rest.Config) error

	// Output receives a line per step of Start, and a line when a process ends unexpectedly. By default nothing is
	// written.
	Output io.Writer
}
