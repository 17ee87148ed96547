//go:build e2e && linux

package install

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/test/realnode"
)

// restartTime is how long the test observes a pod. A pod without a restart in this time is stable.
const restartTime = 40 * time.Second

// A pod with an unusable kubeconfig or a missing image must not become ready. A log line or an event must name the
// cause. The pod must not restart repeatedly, because an administrator needs its log.
func TestBadInput(t *testing.T) {
	m := newMachinist(t)
	h := helmOf(t, m.cluster, "4")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}
	if err := m.api.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	user := configWithCertificate(t, m.cluster, now.Add(time.Hour), pkix.Name{CommonName: "unprivileged-user"})
	administrator := pkix.Name{CommonName: "kubernetes-admin", Organization: []string{"system:masters"}}
	cases := []struct {
		name     string
		config   *rest.Config // nil if the Secret does not exist
		flags    []string
		mentions []string // texts that a single log line or event must contain
	}{
		{
			name:     "missing",
			flags:    []string{"--set=control.kubeconfigSecret.name=missing", "--set=target.kubeconfigSecret.name=missing"},
			mentions: []string{`"missing"`, "not found"},
		},
		{
			name:     "outdated",
			config:   configWithCertificate(t, m.cluster, now.Add(-time.Hour), administrator),
			flags:    []string{"--set=control.kubeconfigSecret.name=outdated", "--set=target.kubeconfigSecret.name=outdated"},
			mentions: []string{"/etc/machinist/control/kubeconfig", "expired"},
		},
		{
			name:     "norights",
			config:   user,
			flags:    []string{"--set=control.kubeconfigSecret.name=norights", "--set=target.kubeconfigSecret.name=norights"},
			mentions: []string{"unprivileged-user", "lacks a right"},
		},
		{
			name:     "noimage",
			flags:    []string{"--set=image.tag=v9.9.9"},
			mentions: []string{"v9.9.9", "not found"},
		},
	}
	for _, c := range cases {
		if c.config != nil {
			m.kubeconfigSecret("bad", c.name, c.config)
		}
		h.run(t, slices.Concat([]string{"install", c.name, chart("machinist-provider"), "--namespace=bad",
			"--set=provider.name=" + c.name, "--set=image.repository=machinist-provider-sim", "--set=replicas=1",
			"--set=webhook.enabled=false", "--set=provider.flags.cloud-endpoint=http://nowhere:8080", onRealNode()},
			c.flags)...)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := &machinist{t: t, cluster: m.cluster, api: m.api}
			t.Cleanup(func() {
				if t.Failed() {
					m.explain()
				}
			})
			m.eventually("a log line or an event names the cause", func() (bool, string) {
				lines := m.lines("bad", "machinist-provider-"+c.name)
				for _, line := range lines {
					if !slices.ContainsFunc(c.mentions, func(s string) bool { return !strings.Contains(line, s) }) {
						progress(t, "%s", line)
						return true, ""
					}
				}
				return false, strings.Join(lines[max(0, len(lines)-5):], "\n")
			})
		})
	}
	m.eventually(fmt.Sprintf("all pods are older than %s", restartTime), func() (bool, string) {
		pods := m.pods("bad", "machinist-provider")
		young := slices.DeleteFunc(pods, func(p corev1.Pod) bool {
			return time.Since(p.CreationTimestamp.Time) > restartTime
		})
		return len(young) == 0, fmt.Sprintf("%d younger pods", len(young))
	})
	for _, pod := range m.pods("bad", "machinist-provider") {
		if podReady(&pod) {
			t.Errorf("pod %s is ready", pod.Name)
		}
		for _, s := range pod.Status.ContainerStatuses {
			if s.RestartCount > 0 {
				t.Errorf("pod %s was restarted %d times", pod.Name, s.RestartCount)
			}
		}
	}
	for _, c := range cases {
		h.run(t, "uninstall", c.name, "--namespace=bad")
	}
}

// The schema of the chart must refuse an invalid value before Helm installs anything. The error must contain the path
// of the value.
func TestChartRefusesInvalidValues(t *testing.T) {
	m := newMachinist(t)
	for _, version := range versions() {
		h := helmOf(t, m.cluster, version)
		for flag, path := range map[string]string{
			"--set=replicaz=3":              "replicaz",
			"--set=replicas=many":           "replicas",
			"--set=log.level[0]=loud":       "level",
			"--set-string=crds.keep=please": "keep",
		} {
			output, err := h.try("install", "wrong", chart("machinist"), "--namespace=wrong", "--create-namespace", flag)
			if err == nil {
				t.Errorf("helm%s accepted %s", version, flag)
			} else if !strings.Contains(output, path) {
				t.Errorf("helm%s: the refusal of %s does not contain %q:\n%s", version, flag, path, output)
			}
		}
	}
}

func (m *machinist) kubeconfigSecret(namespace, name string, config *rest.Config) {
	m.t.Helper()
	// Pods reach the API server at another address than this host.
	config = rest.CopyConfig(config)
	config.Host = "https://kubernetes.default.svc"
	path := filepath.Join(m.t.TempDir(), "kubeconfig")
	if err := controlplane.WriteKubeconfig(path, config); err != nil {
		m.t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		m.t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data: map[string][]byte{"kubeconfig": content}}
	if err := m.api.Create(m.t.Context(), secret); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machinist) lines(namespace, program string) []string {
	m.t.Helper()
	var lines []string
	for _, pod := range m.pods(namespace, program) {
		text, err := m.readLog(&pod)
		if err != nil {
			continue // The container has not started, so it has no log.
		}
		for line := range strings.Lines(text) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	events := &corev1.EventList{}
	if err := m.api.List(m.t.Context(), events, client.InNamespace(namespace)); err != nil {
		m.t.Fatal(err)
	}
	for _, e := range events.Items {
		if strings.HasPrefix(e.InvolvedObject.Name, program+"-") {
			lines = append(lines, fmt.Sprintf("event %s: %s", e.Reason, e.Message))
		}
	}
	return lines
}

// configWithCertificate returns a configuration with a client certificate of the cluster's authority that is valid
// until the given time.
func configWithCertificate(t *testing.T, c *realnode.KubeadmCluster, until time.Time, subject pkix.Name) *rest.Config {
	t.Helper()
	const pki = "/etc/kubernetes/pki"
	authority, err := tls.LoadX509KeyPair(filepath.Join(pki, "ca.crt"), filepath.Join(pki, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	parent, err := x509.ParseCertificate(authority.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      subject,
		NotBefore:    until.Add(-2 * time.Hour),
		NotAfter:     until,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, parent, key.Public(), authority.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	config := c.Config()
	config.CertData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	config.KeyData = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
	return config
}
