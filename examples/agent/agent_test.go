//go:build unix

package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	requested = "machinist.dev/update-requested"
	result    = "machinist.dev/update-result"
)

type apiServer struct {
	*httptest.Server
	mu     sync.Mutex
	node   corev1.Node
	patch  chan []map[string]string
	caller string
}

// serve starts an API server with one Node, whose annotation requests the given kubelet version.
func serve(t *testing.T, version string) *apiServer {
	t.Helper()
	s := &apiServer{patch: make(chan []map[string]string, 1)}
	s.node.Name = "n1"
	s.node.Labels = map[string]string{requested: "v9.9.9"} // The agent must ignore this label.
	s.node.Annotations = map[string]string{requested: version}
	s.node.Status.NodeInfo.KubeletVersion = "v1.36.3"
	s.Server = httptest.NewUnstartedServer(s)
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caller = r.TLS.PeerCertificates[0].Subject.CommonName
	if r.URL.Path != "/api/v1/nodes/n1" {
		http.NotFound(w, r)
		return
	}
	if r.Method == http.MethodPatch {
		body, _ := io.ReadAll(r.Body)
		var ops []map[string]string
		if err := json.Unmarshal(body, &ops); err != nil || r.Header.Get("Content-Type") != "application/json-patch+json" {
			http.Error(w, "not a JSON patch", http.StatusBadRequest)
			return
		}
		s.node.Annotations[result] = ops[1]["value"]
		s.patch <- ops
		return
	}
	pretty, _ := json.MarshalIndent(s.node, "", "  ")
	_, _ = w.Write(pretty)
}

func (s *apiServer) reportKubelet(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node.Status.NodeInfo.KubeletVersion = version
}

// newMachine creates a folder with the files that the agent reads, and with fakes of the programs that it calls.
func newMachine(t *testing.T, s *apiServer, install string) (root string) {
	t.Helper()
	root = t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	for path, content := range map[string]string{
		"/var/lib/kubelet/kubeconfig": fmt.Sprintf("clusters:\n- cluster:\n    certificate-authority-data: %s\n    server: %s\n",
			base64.StdEncoding.EncodeToString(ca), s.URL),
		"/var/lib/kubelet/pki/kubelet-client-current.pem": identity(t),
		"/etc/default/kubelet":                            "KUBELET_VERSION=v1.36.3\nKUBELET_EXTRA_ARGS=-v=2\n",
		"/etc/machinist/kubelet-sha256":                   "",
		"/opt/machinist/install-kubelet":                  "#!/bin/sh\n" + install + "\n",
		"/bin/systemctl":                                  "#!/bin/sh\necho \"$*\" >>" + root + "/restarts\n",
	} {
		if err := os.MkdirAll(filepath.Dir(root+path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(root+path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func identity(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}))
}

func startAgent(t *testing.T, root string) {
	t.Helper()
	agent := exec.CommandContext(t.Context(), "sh", "update-agent")
	agent.Env = []string{"ROOT=" + root, "RUNTIME_DIRECTORY=" + root, "PAUSE=0.1", "PATIENCE=600",
		"PATH=" + root + "/bin:" + os.Getenv("PATH")}
	var log strings.Builder
	agent.Stdout, agent.Stderr = &log, &log
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = agent.Process.Kill()
		_ = agent.Wait() // The error is that the agent was killed.
		if t.Failed() {
			t.Logf("output of the agent:\n%s", log.String())
		}
	})
}

// awaitAnswer waits until the agent has reported a result, and returns its patch of the Node.
func awaitAnswer(t *testing.T, s *apiServer) []map[string]string {
	t.Helper()
	select {
	case patch := <-s.patch:
		return patch
	case <-time.After(time.Minute):
		t.Fatal("the agent did not answer within a minute")
		return nil
	}
}

func TestAgentInstallsRequestedVersion(t *testing.T) {
	s := serve(t, "v1.36.4")
	root := newMachine(t, s, `echo "$1" >>`+"$ROOT/installed")
	// With a FIFO, the test can wait until the agent calls systemctl.
	if err := syscall.Mkfifo(root+"/restarts", 0o600); err != nil {
		t.Fatal(err)
	}
	restarted := make(chan string, 1)
	go func() {
		restarts, err := os.ReadFile(root + "/restarts")
		restarted <- fmt.Sprint(string(restarts), err)
	}()
	startAgent(t, root)
	select {
	case patch := <-s.patch:
		t.Fatalf("the agent answered %v before it restarted the kubelet", patch)
	case got := <-restarted:
		if got != "restart kubelet.service\n<nil>" {
			t.Fatalf("the agent called systemctl with %q", got)
		}
	}
	s.reportKubelet("v1.36.4")
	patch := awaitAnswer(t, s)
	if patch[0]["op"] != "test" || patch[0]["path"] != "/metadata/annotations/machinist.dev~1update-requested" ||
		patch[0]["value"] != "v1.36.4" || patch[1]["op"] != "add" ||
		patch[1]["path"] != "/metadata/annotations/machinist.dev~1update-result" || patch[1]["value"] != "succeeded" {
		t.Errorf("the agent answered %v", patch)
	}
	if s.caller != "system:node:n1" {
		t.Errorf("the agent used the certificate of %s", s.caller)
	}
	for path, want := range map[string]string{
		"/installed":           "v1.36.4\n",
		"/etc/default/kubelet": "KUBELET_VERSION=v1.36.4\nKUBELET_EXTRA_ARGS=-v=2\n",
	} {
		if got, err := os.ReadFile(root + path); err != nil || string(got) != want {
			t.Errorf("%s is %q (%v), want %q", path, got, err, want)
		}
	}
}

func TestAgentAnswersWithoutRestart(t *testing.T) {
	for name, test := range map[string]struct{ version, install, want string }{
		"already runs":  {"v1.36.3", "exit 1", "succeeded"},
		"not a version": {"1.36; reboot", "exit 0", "failed: 1.36; reboot is not a version"},
		"path":          {"v1.36.3/../x", "exit 0", "failed: v1.36.3/../x is not a version"},
		"no checksum":   {"v1.36.4", `echo "install-kubelet: no \"checksum\"" >&2; exit 1`, "failed: install-kubelet: no checksum"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, test.version)
			root := newMachine(t, s, test.install)
			startAgent(t, root)
			if got := awaitAnswer(t, s)[1]["value"]; got != test.want {
				t.Errorf("the agent answered %q, want %q", got, test.want)
			}
			if restarts, err := os.ReadFile(root + "/restarts"); err == nil {
				t.Errorf("the agent called systemctl: %s", restarts)
			}
			defaults, err := os.ReadFile(root + "/etc/default/kubelet")
			if err != nil || !strings.Contains(string(defaults), "=v1.36.3\n") {
				t.Errorf("/etc/default/kubelet is %q (%v), want the old version", defaults, err)
			}
		})
	}
}
