package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/simcloud"
)

// testTimeout is how long a test waits for an expected state. After an outage of the API server, a watcher may wait a
// minute before it watches again. A pod runs only after two such watchers have noticed changes: the node controller and
// the scheduler.
const testTimeout = 3 * time.Minute

// asCommand is an environment variable that makes the test binary run the command instead of the tests. Tests can then
// kill a real process without building another binary.
const asCommand = "SIMCLOUD_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	if err := os.Setenv(asCommand, "1"); err != nil { // for the child processes
		panic(err)
	}
	code := m.Run()
	if c := theCluster.cp; c != nil {
		if err := c.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

var theCluster cluster

// cluster is a real control plane. The control plane approves node certificates, and soon marks a node without a
// current Lease as unknown.
type cluster struct {
	once sync.Once
	cp   *controlplane.ControlPlane
	err  error
	kube *kubernetes.Clientset
}

func startCluster(t testing.TB) *cluster {
	t.Helper()
	c := &theCluster
	c.once.Do(func() {
		// Other tests use the cluster too, so it must outlive this test's context.
		c.cp, c.err = controlplane.Start(context.Background(), controlplane.Options{
			WithControllerManager: true, WithScheduler: true, ApproveNodeClientCSRs: true,
			ExtraControllerManagerArgs: []string{"--node-monitor-grace-period=6s", "--node-monitor-period=1s"},
		})
		if c.err == nil {
			c.kube, c.err = kubernetes.NewForConfig(c.cp.Config())
		}
	})
	if c.err != nil {
		t.Fatal(c.err)
	}
	t.Cleanup(func() { c.deleteAll(t) })
	return c
}

func (c *cluster) deleteAll(t testing.TB) {
	ctx, all := context.Background(), metav1.ListOptions{} // the context of the test has ended
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}
	if err := errors.Join(
		c.kube.CoreV1().Pods("default").DeleteCollection(ctx, now, all),
		c.kube.CoreV1().Nodes().DeleteCollection(ctx, now, all),
		c.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).DeleteCollection(ctx, now, all),
		c.kube.CertificatesV1().CertificateSigningRequests().DeleteCollection(ctx, now, all),
	); err != nil {
		t.Error(err)
	}
}

// token creates a bootstrap token and returns it with the name of its Secret.
func (c *cluster) token(t testing.TB) (token, secret string) {
	t.Helper()
	id := strings.ToLower(rand.Text()[:6])
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": "0123456789abcdef",
			"usage-bootstrap-authentication": "true", "auth-extra-groups": controlplane.KubeadmTokens,
			"expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		},
	}
	if _, err := c.kube.CoreV1().Secrets(s.Namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return id + ".0123456789abcdef", s.Name
}

// userData returns user data with which a machine joins the cluster. Leases are short, so that a silent node is noticed
// soon.
func (c *cluster) userData(token string) []byte { return c.userDataWith(token, c.cp.CA(), 4) }

func (c *cluster) userDataWith(token string, ca []byte, leaseSeconds int) []byte {
	files := map[string]string{
		"/etc/kubernetes/bootstrap-kubeconfig": fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: bootstrap
clusters: [{name: target, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: kubelet, user: {token: %q}}]
contexts: [{name: bootstrap, context: {cluster: target, user: kubelet}}]
`, c.cp.Endpoint(), base64.StdEncoding.EncodeToString(ca), token),
		"/var/lib/kubelet/config.yaml": fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
registerWithTaints: [{key: example.com/uninitialized, effect: PreferNoSchedule}]
nodeLeaseDurationSeconds: %[1]d
nodeStatusUpdateFrequency: %[2]s
nodeStatusReportFrequency: 5m
`, leaseSeconds, time.Duration(leaseSeconds)*time.Second/4),
		"/etc/default/kubelet": `KUBELET_EXTRA_ARGS="--node-labels=example.com/pool=blue"
KUBELET_VERSION=v1.36.1
`,
	}
	var b strings.Builder
	b.WriteString("#cloud-config\nwrite_files:\n")
	for path, content := range files {
		fmt.Fprintf(&b, "- {path: %s, encoding: b64, content: %s}\n", path,
			base64.StdEncoding.EncodeToString([]byte(content)))
	}
	return []byte(b.String())
}

func otherCA(t testing.TB) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func commonName(t testing.TB, r certificatesv1.CertificateSigningRequest) string {
	t.Helper()
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		t.Fatalf("request %s is not PEM", r.Name)
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return request.Subject.CommonName
}

type cloudProcess struct {
	t       testing.TB
	dir     string
	process *child.Process
	client  *simcloud.Client
	admin   *simcloud.Admin
}

func startProcess(t testing.TB) *cloudProcess {
	t.Helper()
	p := &cloudProcess{t: t, dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(p.dir, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p.start()
	t.Cleanup(func() {
		if p.process.IsRunning() {
			p.stop(syscall.SIGTERM)
		}
	})
	return p
}

const config = `
accounts: [{name: alice, token: a}]
settings: {bootTime: 100ms, rebootTime: 100ms, shutdownTime: 100ms, host: {podStartTime: 200ms, podStopTime: 200ms}}
`

func (p *cloudProcess) start() {
	p.t.Helper()
	addressFile := filepath.Join(p.dir, "address")
	// A killed process does not delete its address file.
	if err := os.RemoveAll(addressFile); err != nil {
		p.t.Fatal(err)
	}
	p.process = &child.Process{Name: "simcloud", Path: os.Args[0], Dir: p.dir, Args: []string{
		"--state-dir", filepath.Join(p.dir, "state"), "--config", filepath.Join(p.dir, "config.yaml"),
		"--admin-token", "admin", "--address-file", addressFile, "--log-level", "warn",
	}}
	if err := p.process.Start(); err != nil {
		p.t.Fatal(err)
	}
	var address []byte
	if err := p.process.Await(p.t.Context(), func(context.Context) (err error) {
		address, err = os.ReadFile(addressFile)
		return err
	}); err != nil {
		p.t.Fatal(err)
	}
	endpoint := "http://" + strings.TrimSpace(string(address))
	var err error
	if p.client, err = simcloud.New(simcloud.Config{Endpoint: endpoint, Token: "a"}); err != nil {
		p.t.Fatal(err)
	}
	if p.admin, err = simcloud.NewAdmin(simcloud.Config{Endpoint: endpoint, Token: "admin"}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *cloudProcess) stop(signal syscall.Signal) {
	p.t.Helper()
	if err := p.process.Signal(signal); err != nil {
		p.t.Fatal(err)
	}
	<-p.process.Done()
	if err := p.process.Err(); signal != syscall.SIGKILL && err != nil {
		p.t.Errorf("after %s: %v; %s", signal, err, p.process.LogTail())
	}
}

func (p *cloudProcess) restart(signal syscall.Signal) {
	p.t.Helper()
	p.stop(signal)
	p.start()
}

func (p *cloudProcess) create(name string, userData []byte,
	change ...func(*simcloud.CreateInstanceRequest)) *simcloud.Instance {
	p.t.Helper()
	req := simcloud.CreateInstanceRequest{
		Name: name, Region: "sim-1", Zone: "sim-1b", Type: "medium", Image: "sim-os-1", UserData: userData,
		ClientToken: name, Tags: map[string]string{"uid": name},
	}
	for _, c := range change {
		c(&req)
	}
	inst, err := p.client.CreateInstance(p.t.Context(), req)
	if err != nil {
		p.t.Fatal(err)
	}
	return inst
}

func (p *cloudProcess) applyFault(id string, kind simcloud.InstanceFaultKind) {
	p.t.Helper()
	if _, err := p.admin.AddInstanceFault(p.t.Context(), id, simcloud.InstanceFault{Kind: kind}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *cloudProcess) wantConsole(id, text string) {
	p.t.Helper()
	eventually(p.t, func() error {
		console, err := p.client.ConsoleOutput(p.t.Context(), id)
		if err == nil && !strings.Contains(console, text) {
			err = fmt.Errorf("the console has no %q:\n%s", text, console)
		}
		return err
	})
}

func eventually(t testing.TB, try func() error) {
	t.Helper()
	deadline := time.After(testTimeout)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("after %s: %v", testTimeout, err)
		case <-tick.C:
		}
	}
}

func (c *cluster) node(t testing.TB, name string) (*corev1.Node, error) {
	t.Helper()
	return c.kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
}

// readiness returns the status of the node's Ready condition, or "" without this condition.
func readiness(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return ""
}

func (c *cluster) wantReady(t testing.TB, name string, status corev1.ConditionStatus) (node *corev1.Node) {
	t.Helper()
	eventually(t, func() error {
		var err error
		if node, err = c.node(t, name); err != nil {
			return err
		}
		if readiness(node) != status {
			return fmt.Errorf("node %s is not Ready=%s: %+v", name, status, node.Status.Conditions)
		}
		return nil
	})
	return node
}

func (c *cluster) wantSchedulable(t testing.TB, name string) {
	t.Helper()
	eventually(t, func() error {
		node, err := c.node(t, name)
		if err != nil {
			return err
		}
		for _, taint := range node.Spec.Taints {
			if taint.Effect != corev1.TaintEffectPreferNoSchedule {
				return fmt.Errorf("node %s has the taint %v", name, taint)
			}
		}
		return nil
	})
}

func (c *cluster) wantRenewal(t testing.TB, name string, after time.Time) {
	t.Helper()
	eventually(t, func() error {
		lease, err := c.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && !lease.Spec.RenewTime.After(after) {
			err = fmt.Errorf("the Lease was last renewed at %s", lease.Spec.RenewTime)
		}
		return err
	})
}
