package controlplane

import (
	"context"
	"io"
	"net"

	"k8s.io/client-go/rest"
)

// Options say what a control plane consists of. The zero value is etcd and
// kube-apiserver in a temporary folder.
type Options struct {
	// Dir is the folder for keys, data, logs and kubeconfigs. It is created
	// if it does not exist and must be empty if it does; Stop leaves it. By
	// default it is a temporary folder, which Stop removes.
	Dir string

	// WithControllerManager runs kube-controller-manager with all its
	// controllers, the two for bootstrap tokens included. Without it nothing
	// creates service accounts, so that the API server then admits pods
	// without one.
	WithControllerManager bool

	// WithScheduler runs kube-scheduler.
	WithScheduler bool

	// Address, if set, is an address of this machine, not on loopback, where
	// pods of a real node reach the API server: it becomes the endpoint of the
	// service kubernetes, and the certificate is valid for both. The API server
	// then listens on all addresses, so this is for a network namespace of the
	// test's own.
	Address net.IP

	// ServerAddresses are more addresses for which the API server's certificate
	// is valid: those at which virtual machines reach it, such as 10.0.2.2 in
	// the user network of QEMU, or one from which somebody passes connections
	// on to Endpoint. With them the API server calls kubelets by their internal
	// addresses.
	ServerAddresses []net.IP

	// Audit makes the API server record every request at level Metadata in
	// ControlPlane.AuditLog, before it answers it.
	Audit bool

	// ApproveNodeClientCSRs lets kube-controller-manager's own approver
	// approve the kubelets' client certificates, the first one by bootstrap
	// token and the renewals. Without it they stay pending until somebody
	// else approves them. Without WithControllerManager it has no effect.
	ApproveNodeClientCSRs bool

	// ExtraAPIServerArgs and ExtraControllerManagerArgs are flags put behind
	// those chosen here, such as "--min-request-timeout=5" for the former or
	// "--node-monitor-grace-period=6s" for the latter. Where a flag has one
	// value, the last one given counts.
	ExtraAPIServerArgs         []string
	ExtraControllerManagerArgs []string

	// Prepare is called when the API server is ready, with its
	// administrator's configuration, and before kube-controller-manager
	// starts: that looks for kinds that come later only every 30 seconds, and
	// until then collects nothing of theirs.
	Prepare func(context.Context, *rest.Config) error

	// Output receives a line per step of Start, and one if a process ends
	// that nobody stopped. By default nothing is written.
	Output io.Writer
}
