package controlplane

import (
	"fmt"
	"net"
	"path/filepath"
)

// etcdSocket is the socket of etcd, in the control plane's folder. A socket needs no port, and only this user can
// connect to it. The operating system limits the length of a socket's path. Therefore the path is relative to the
// working directory of the processes. The URL of etcd must have the form host:port.
const (
	etcdSocket     = "etcd.sock:0"
	etcdPeerSocket = "etcd-peer.sock:0"
)

// etcdData is the folder in the control plane's folder that contains all data of etcd.
const etcdData = "etcd"

// ServiceRange is the range of the addresses of Services. serviceAddress is the first address of this range, the
// address of the Service kubernetes.
const ServiceRange = "10.96.0.0/16"

var serviceAddress = net.IPv4(10, 96, 0, 1)

func etcdArgs() []string {
	return []string{
		"--name=etcd",
		"--data-dir=" + etcdData,
		"--listen-client-urls=unix://" + etcdSocket,
		"--advertise-client-urls=unix://" + etcdSocket,
		"--listen-peer-urls=unix://" + etcdPeerSocket,
		"--initial-advertise-peer-urls=unix://" + etcdPeerSocket,
		"--initial-cluster=etcd=unix://" + etcdPeerSocket,
		// The data must survive a crash of the process, but not of the machine.
		"--unsafe-no-fsync",
		fmt.Sprintf("--quota-backend-bytes=%d", 8<<30),
		"--log-level=warn",
	}
}

func (cp *ControlPlane) apiServerArgs(port int) []string {
	args := append([]string{
		"--etcd-servers=unix://" + etcdSocket,
		"--service-cluster-ip-range=" + ServiceRange,
		"--allow-privileged=true",
		"--client-ca-file=" + cp.pki.caCert,
		"--authorization-mode=Node,RBAC",
		"--enable-bootstrap-token-auth=true",
		"--kubelet-certificate-authority=" + cp.pki.caCert,
		"--kubelet-client-certificate=" + cp.pki.kubeletClient + ".crt",
		"--kubelet-client-key=" + cp.pki.kubeletClient + ".key",
		// Servers that delegate authentication, such as kube-controller-manager and kube-scheduler, continuously log
		// errors without a front proxy configuration.
		"--requestheader-client-ca-file=" + cp.pki.frontProxyCACert,
		"--requestheader-allowed-names=" + frontProxyUser,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + cp.pki.frontProxyClient + ".crt",
		"--proxy-client-key-file=" + cp.pki.frontProxyClient + ".key",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + cp.pki.serviceAccountKey,
		"--service-account-signing-key-file=" + cp.pki.serviceAccountKey,
	}, cp.serving(port)...)
	args = append(args, cp.advertising()...)
	if cp.options.Address != nil || len(cp.options.ServerAddresses) > 0 {
		// By default the API server connects to kubelets by their host names, which do not resolve here.
		args = append(args, "--kubelet-preferred-address-types=InternalIP")
	}
	if cp.options.WithControllerManager {
		args = append(args, "--enable-admission-plugins=NodeRestriction,ServiceAccount")
	} else {
		args = append(args, "--enable-admission-plugins=NodeRestriction", "--disable-admission-plugins=ServiceAccount")
	}
	if cp.options.Audit {
		args = append(args,
			"--audit-policy-file="+cp.auditPolicyPath(),
			"--audit-log-path="+cp.AuditLog(),
			"--audit-log-mode=blocking",
			// Readers keep a position in the file, so it must not be rotated.
			"--audit-log-maxsize=0",
		)
	}
	return append(args, cp.options.ExtraAPIServerArgs...)
}

// advertising returns the flags for the address at which pods reach the API server.
func (cp *ControlPlane) advertising() []string {
	if cp.options.Address == nil {
		return []string{
			"--advertise-address=127.0.0.1",
			// Endpoints on loopback are invalid, and no pod could use them.
			"--endpoint-reconciler-type=none",
		}
	}
	return []string{
		"--advertise-address=" + cp.options.Address.String(),
		// The last occurrence of a flag takes precedence, so this value replaces the --bind-address that the method
		// serving adds.
		"--bind-address=0.0.0.0",
	}
}

// UnauditedUser is a user whose requests are not logged, for measuring the cost of the audit log.
const UnauditedUser = "unaudited"

// AuditPolicy makes the API server log each request once, when the response is complete.
const AuditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  users: [` + UnauditedUser + `]
- level: Metadata
`

func (cp *ControlPlane) controllerManagerArgs(port int, kubeconfig string) []string {
	args := append([]string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--controllers=*,bootstrapsigner,tokencleaner",
		// Each controller has its own identity, as in most clusters, so the audit log shows which controller sent a
		// write.
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + cp.pki.serviceAccountKey,
		"--root-ca-file=" + cp.pki.caCert,
		"--cluster-signing-cert-file=" + cp.pki.caCert,
		"--cluster-signing-key-file=" + cp.pki.caKey,
		// By default, this folder is outside of the control plane's folder.
		"--flex-volume-plugin-dir=" + filepath.Join(cp.dir, "flexvolume"),
		// With the default of 20 requests a second, this rate limit would dominate measurements of mass creation and
		// deletion.
		"--kube-api-qps=5000",
		"--kube-api-burst=10000",
		"--concurrent-gc-syncs=64",
		"--concurrent-namespace-syncs=32",
	}, cp.serving(port)...)
	return append(args, cp.options.ExtraControllerManagerArgs...)
}

func (cp *ControlPlane) schedulerArgs(port int, config, kubeconfig string) []string {
	return append([]string{
		"--config=" + config,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
	}, cp.serving(port)...)
}

func schedulerConfig(kubeconfig string) string {
	return fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
clientConnection:
  kubeconfig: %q
  qps: 5000
  burst: 10000
`, kubeconfig)
}

func (cp *ControlPlane) serving(port int) []string {
	return []string{
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + cp.pki.server + ".crt",
		"--tls-private-key-file=" + cp.pki.server + ".key",
	}
}

func (cp *ControlPlane) auditPolicyPath() string {
	return filepath.Join(cp.dir, "audit-policy.yaml")
}
