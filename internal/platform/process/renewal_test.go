package process

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/internal/platform/reachability"
)

type kubeconfigFile struct {
	t    *testing.T
	path string
}

func newKubeconfigFile(t *testing.T) kubeconfigFile {
	return kubeconfigFile{t, filepath.Join(t.TempDir(), "kubeconfig")}
}

func (f kubeconfigFile) withToken(server string, ca []byte, token string) {
	f.t.Helper()
	const name = "test"
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: server, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, f.path)
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f kubeconfigFile) withCertificate(plane *controlplane.ControlPlane, user *rest.Config) {
	f.t.Helper()
	c := rest.CopyConfig(plane.Config())
	c.CertData, c.KeyData = user.CertData, user.KeyData
	if err := controlplane.WriteKubeconfig(f.path, c); err != nil {
		f.t.Fatal(err)
	}
}

// account is a ServiceAccount with all rights. Each of its tokens is bound to a Secret.
type account struct {
	t      *testing.T
	plane  *controlplane.ControlPlane
	client kubernetes.Interface
	*corev1.ServiceAccount
}

func newAccount(t *testing.T, plane *controlplane.ControlPlane) account {
	t.Helper()
	a := account{t: t, plane: plane, client: clientset(t, plane.Config())}
	var err error
	a.ServiceAccount, err = a.client.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: a.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: a.Namespace, Name: a.Name}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (a account) token() (token string, void func()) {
	a.t.Helper()
	ctx := a.t.Context()
	secret, err := a.client.CoreV1().Secrets(a.Namespace).Create(ctx,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: a.Name + "-"}}, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	request, err := a.client.CoreV1().ServiceAccounts(a.Namespace).CreateToken(ctx, a.Name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1",
			Kind: "Secret", Name: secret.Name, UID: secret.UID}},
	}, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return request.Status.Token, func() {
		a.t.Helper()
		if err := a.client.CoreV1().Secrets(a.Namespace).Delete(ctx, secret.Name, metav1.DeleteOptions{}); err != nil {
			a.t.Fatal(err)
		}
		bearer := clientset(a.t, &rest.Config{Host: a.plane.Endpoint(),
			TLSClientConfig: rest.TLSClientConfig{CAData: a.plane.CA()}, BearerToken: request.Status.Token})
		eventually(a.t, func() error {
			// The API server caches the token for some seconds.
			if _, err := bearer.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1}); !apierrors.IsUnauthorized(err) {
				return fmt.Errorf("a request with a token whose Secret was deleted: %v, want unauthorized", err)
			}
			return nil
		})
	}
}

func (p *process) wantFrozen(o Options, reason string) {
	p.t.Helper()
	frozen, err := reachability.FrozenMetric(o.Registerer)
	if err != nil {
		p.t.Fatal(err)
	}
	eventually(p.t, func() error {
		if got, message := p.Reachability().StopReason(); got != reason {
			return fmt.Errorf("stopped by %q (%s), want %q", got, message, reason)
		}
		for _, r := range []string{v1beta1.ReasonControlPlaneUnreachable, v1beta1.ReasonTargetCredentialsRefused,
			v1beta1.ReasonControlCredentialsRefused} {
			want := 0.0
			if r == reason {
				want = 1
			}
			if got := testutil.ToFloat64(frozen.WithLabelValues(r)); got != want {
				return fmt.Errorf("machinist_frozen of %s is %v, want %v", r, got, want)
			}
		}
		return nil
	})
}

// Rules: refused-credentials-are-outage, renewed-kubeconfig-used.
func TestAnInvalidTokenIsAnOutageUntilTheFileHasANewOne(t *testing.T) {
	admin := newAccount(t, planes.target)
	token, void := admin.token()
	file := newKubeconfigFile(t)
	file.withToken(planes.target.Endpoint(), planes.target.CA(), token)
	c, o := withFrequentChecks(testConfig(t)), testOptions()
	c.TargetKubeconfig = file.path
	p := start(t, c, o, nil)
	p.elected()
	p.probeReports("/readyz", http.StatusOK, "frozen: no")
	<-p.Target().CacheFilled()

	void()
	p.wantFrozen(o, v1beta1.ReasonTargetCredentialsRefused)
	p.probeReports("/readyz", http.StatusOK, "frozen: The target cluster has refused the credentials of this process since ")
	p.probeReports("/readyz", http.StatusOK, "target: the API server refuses the credentials of this process")
	p.logs.contain(t, "Cluster refuses the credentials of this process")
	watch := p.Reachability()
	if _, stable := watch.StableSince(); stable || !watch.TargetRefuses() {
		t.Errorf("StableSince() = %t, TargetRefuses() = %t", stable, watch.TargetRefuses())
	}
	node := newNode(t, "created-while-refused")

	token, _ = admin.token()
	file.withToken(planes.target.Endpoint(), planes.target.CA(), token)
	p.wantFrozen(o, "")
	p.probeReports("/readyz", http.StatusOK, "frozen: no")
	if past, _ := watch.TargetOutages(); len(past) == 0 {
		t.Error("TargetOutages() lacks the outage")
	}
	if err := p.Target().Client.Get(t.Context(), client.ObjectKeyFromObject(node), &corev1.Node{}); err != nil {
		t.Errorf("the cache has not caught up: %v", err)
	}
	if err := p.stopAndWait(); err != nil {
		t.Errorf("Run() = %v", err)
	}
	noGoroutinesLeft(t)
}

// Rules: refused-credentials-are-outage, renewed-kubeconfig-used.
func TestAProcessStartsWithRefusedCredentials(t *testing.T) {
	stranger, err := planes.target.UserConfig("stranger")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		user    *rest.Config
		reports string
	}{
		"a certificate of another authority": {planes.control.Config(), "target: the API server refuses the credentials of this process"},
		"a user who may not read nodes":      {stranger, "target: reachable"},
	} {
		t.Run(name, func(t *testing.T) {
			file := newKubeconfigFile(t)
			file.withCertificate(planes.target, tc.user)
			c, o := withFrequentChecks(testConfig(t)), testOptions()
			c.TargetKubeconfig = file.path
			p := start(t, c, o, nil)
			p.elected()
			p.wantFrozen(o, v1beta1.ReasonTargetCredentialsRefused)
			p.probeReports("/readyz", http.StatusOK, tc.reports)
			file.withCertificate(planes.target, planes.target.Config())
			p.wait("the target's cache", p.Target().CacheFilled())
			p.wantFrozen(o, "")
		})
	}
}

// Rule: renewed-kubeconfig-used.
func TestALeaderKeepsItsLeaseWhileItsCredentialsAreRenewed(t *testing.T) {
	admin := newAccount(t, planes.control)
	token, void := admin.token()
	file := newKubeconfigFile(t)
	file.withToken(planes.control.Endpoint(), planes.control.CA(), token)
	c := testConfig(t)
	c.ControlKubeconfig = file.path
	p := start(t, c, testOptions(), nil)
	p.elected()
	token, _ = admin.token()
	file.withToken(planes.control.Endpoint(), planes.control.CA(), token)
	void()
	voided := time.Now()
	leases := clientset(t, planes.control.Config()).CoordinationV1().Leases(c.LeaderElectionNamespace)
	eventually(t, func() error {
		lease, err := leases.Get(t.Context(), c.leaseName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lease.Spec.RenewTime == nil || !lease.Spec.RenewTime.After(voided) {
			return fmt.Errorf("the Lease was last renewed at %s, before %s", lease.Spec.RenewTime, voided)
		}
		return nil
	})
	select {
	case <-p.Fence().LeaseLost():
		t.Error("the Lease was lost")
	default:
	}
	p.probeReports("/readyz", http.StatusOK, "control ok")
}

type tokenServer struct {
	mu     sync.Mutex
	token  string
	bodies []string // bodies of the accepted requests
	asked  int
}

func (d *tokenServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Header.Get("Authorization") != "Bearer "+d.token {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	d.bodies = append(d.bodies, string(body))
}

func (d *tokenServer) accept(token string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.token = token
}

func authorityOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// Rule: renewed-kubeconfig-used.
func TestARejectedRequestIsRepeatedWithRenewedCredentials(t *testing.T) {
	server := &tokenServer{token: "one"}
	listener := httptest.NewTLSServer(server)
	defer listener.Close()
	file, lines := newKubeconfigFile(t), &logs{}
	file.withToken(listener.URL, authorityOf(listener), "one")
	config, renewal, err := restConfig("target-kubeconfig", file.path, "test", -1, 0,
		funcr.New(lines.add, funcr.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	httpClient, err := rest.HTTPClientFor(renewal.renew(config))
	if err != nil {
		t.Fatal(err)
	}
	post := func(body string) int {
		t.Helper()
		renewal.checked = time.Time{} // Pretend that a second has passed since the last check.
		request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, listener.URL,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := httpClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil {
			t.Fatal(err)
		}
		return response.StatusCode
	}
	want := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: status %d, want %d", what, got, want)
		}
	}
	want("with the first token", post("a"), http.StatusOK)
	server.accept("two")
	want("with an invalid token", post("b"), http.StatusUnauthorized)
	file.withToken(listener.URL, authorityOf(listener), "two")
	want("with the renewed token", post("c"), http.StatusOK)
	want("with the renewed token again", post("d"), http.StatusOK)

	server.accept("three")
	if err := os.WriteFile(file.path, []byte("{half a fi"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("with a file that cannot be read", post("e"), http.StatusUnauthorized)
	another := httptest.NewTLSServer(&tokenServer{token: "three"})
	defer another.Close()
	file.withToken(another.URL, authorityOf(another), "three")
	want("with a file of another server", post("f"), http.StatusUnauthorized)
	lines.contain(t, "restart the process to use it")
	file.withToken(listener.URL, authorityOf(listener), "three")
	want("with a correct file", post("g"), http.StatusOK)

	if got := strings.Join(server.bodies, ""); got != "acdg" {
		t.Errorf("the server accepted the bodies %q", got)
	}
	asked := server.asked
	want("after the renewal", post("h"), http.StatusOK)
	if server.asked != asked+1 {
		t.Errorf("%d requests, want one", server.asked-asked)
	}
	if strings.Contains(lines.String(), "three") {
		t.Errorf("the logs contain a token:\n%s", lines)
	}
}
