package process

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"machinist.dev/machinist/internal/platform/reachability"
)

func (f kubeconfigFile) write(text string) {
	f.t.Helper()
	if err := os.WriteFile(f.path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// A Secret may be created or corrected later than the pod that mounts it. A process that ended instead of waiting would
// be restarted again and again, and only its last log would contain the cause.
//
// Rule: kubeconfig-file-awaited.
func TestAProcessWaitsForAUsableKubeconfigFile(t *testing.T) {
	file := newKubeconfigFile(t)
	c := testConfig(t)
	c.ControlKubeconfig = file.path
	p := start(t, c, testOptions(), nil)
	p.probeReports("/readyz", http.StatusServiceUnavailable, "[-]control: the file "+file.path+" does not exist yet\n")
	p.probeReports("/healthz", http.StatusOK, "lease ok")
	p.logs.contain(t, "--control-kubeconfig="+file.path+": there is no such file yet")
	for content, cause := range map[string]string{
		"":                                  "the file is empty",
		`{"users": [{"token": "top-secret"`: "the file is not a kubeconfig",
		"users: top-secret":                 "the file is not a kubeconfig",
		"kind: Config\napiVersion: v1":      "no configuration has been provided",
		"kind: Config\napiVersion: v1\ncurrent-context: elsewhere": "context was not found for specified context: elsewhere",
	} {
		file.write(content)
		p.probeReports("/readyz", http.StatusServiceUnavailable, "[-]control: the file "+file.path+" cannot be used as a kubeconfig\n")
		eventually(t, func() error {
			p.Control().kubeconfig.check()
			if err := p.Control().checkReadyz(t.Context()); err == nil || !strings.Contains(err.Error(), cause) {
				return fmt.Errorf("%q: %v, want an error with %q", content, err, cause)
			}
			return nil
		})
	}
	file.withCertificate(planes.control, planes.control.Config())
	p.elected()
	p.probeReports("/readyz", http.StatusOK, "[+]control ok")
	if strings.Contains(p.logs.String(), "top-secret") {
		t.Errorf("the logs quote the file:\n%s", p.logs)
	}
	if err := p.stopAndWait(); err != nil {
		t.Errorf("Run() = %v", err)
	}
	noGoroutinesLeft(t)
}

// Rules: kubeconfig-file-awaited, start-waits-for-control-cluster.
func TestAProcessDoesNotWaitForTheTargetsKubeconfig(t *testing.T) {
	file := newKubeconfigFile(t)
	c := withFrequentChecks(testConfig(t))
	c.TargetKubeconfig = file.path
	p := start(t, c, testOptions(), nil)
	p.elected()
	p.probeReports("/readyz", http.StatusOK, "target: the file "+file.path+" does not exist yet")
	p.logs.contain(t, "--target-kubeconfig="+file.path+": there is no such file yet")
	if reason, _ := p.Reachability().StopReason(); reason == "" {
		t.Error("the process may create machines while the target cluster is not known")
	}
	admin := newAccount(t, planes.target)
	token, _ := admin.token()
	file.withToken(planes.target.Endpoint(), planes.target.CA(), token)
	p.wait("the target's cache", p.Target().CacheFilled())
	p.probeReports("/readyz", http.StatusOK, "frozen: no")
}

// Rule: bad-flags-end-process.
func TestNewRefusesAFolderAsAKubeconfig(t *testing.T) {
	folder := t.TempDir()
	c := parsed(t, "--target-kubeconfig=none", "--control-kubeconfig="+folder, "--health-probe-bind-address=0")
	want := "--control-kubeconfig=" + folder + ": the path is a folder"
	if _, err := New(c, testOptions()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("New() = %v", err)
	}
}

// A proxy in front of several clusters selects the cluster by the path.
func TestAKubeconfigFileThatComesLaterMayNameAServerWithAPath(t *testing.T) {
	asked := make(chan string, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.Host + " " + r.URL.EscapedPath() + " " + r.Header.Get("Authorization")
	}))
	defer server.Close()
	file := newKubeconfigFile(t)
	config, renewal, err := restConfig("control-kubeconfig", file.path, "test", -1, 0, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	c, err := discovery.NewDiscoveryClientForConfig(renewal.renew(config))
	if err != nil {
		t.Fatal(err)
	}
	get := func() error {
		return c.RESTClient().Get().AbsPath("/api/a b").MaxRetries(0).Do(t.Context()).Error()
	}
	if err := missingKubeconfig(get()); err == nil {
		t.Error("a request without a kubeconfig was sent")
	}
	file.withToken(server.URL+"/k8s/clusters/c-1", authorityOf(server), "one")
	renewal.check()
	if err := get(); err != nil {
		t.Fatal(err)
	}
	if got, want := <-asked, strings.TrimPrefix(server.URL, "https://")+" /k8s/clusters/c-1/api/a%20b Bearer one"; got != want {
		t.Errorf("asked %q, want %q", got, want)
	}
}

// An API server answers 401 without a reason, but the kubeconfig file may show that the credentials have expired.
//
// Rule: refused-credentials-are-outage.
func TestErrorsNameExpiredCredentials(t *testing.T) {
	server := httptest.NewTLSServer(&tokenServer{token: "another"})
	defer server.Close()
	payload := func(expires int64) string {
		return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, expires))
	}
	for token, want := range map[string]string{
		"head." + payload(1700000000) + ".signature":                       "the token in --control-kubeconfig=%s expired at 2023-11-14T22:13:20Z",
		"head." + payload(time.Now().Add(time.Hour).Unix()) + ".signature": "the credentials in --control-kubeconfig=%s",
		"opaque": "the credentials in --control-kubeconfig=%s",
		"a.b.c":  "the credentials in --control-kubeconfig=%s",
	} {
		file := newKubeconfigFile(t)
		file.withToken(server.URL, authorityOf(server), token)
		c := testConfig(t)
		c.ControlKubeconfig, c.HealthProbeBindAddress = file.path, "0"
		p, err := New(c, testOptions())
		if err != nil {
			t.Fatal(err)
		}
		err = p.Control().checkReadyz(t.Context())
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(want, file.path)) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
		if strings.Contains(fmt.Sprint(err), token) {
			t.Errorf("the error contains the token: %v", err)
		}
		if shown := forProbes(err); !strings.Contains(fmt.Sprint(shown), "refuses the credentials") {
			t.Errorf("a probe shows %v (%v)", shown, reachability.ErrCredentialsRefused)
		}
	}
}

func TestLifetimeOfACertificate(t *testing.T) {
	user, err := planes.control.UserConfig("test-user")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "client.crt")
	if err := os.WriteFile(path, user.CertData, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, config := range []*rest.Config{user, {TLSClientConfig: rest.TLSClientConfig{CertFile: path}}} {
		if what, l := lifetimeOf(config); what != "client certificate" || !l.End.After(time.Now()) {
			t.Errorf("got %q %v", what, l)
		}
	}
	if what, _ := lifetimeOf(&rest.Config{}); what != "" {
		t.Errorf("a configuration without credentials has the lifetime of %q", what)
	}
}
