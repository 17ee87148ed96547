package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/env"
)

// fleetView runs the command "machinist ui". The HTTP client of fleetView has the cookie that the server requires.
type fleetView struct {
	t        *testing.T
	client   *http.Client
	base     string
	requests *requests
}

type requests struct {
	mu   sync.Mutex
	all  []string
	stop func()
}

func (r *requests) inFrontOf(t *testing.T, config *rest.Config) string {
	t.Helper()
	through, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: through, FlushInterval: -1,
		Rewrite: func(q *httputil.ProxyRequest) { q.SetURL(to) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		r.all = append(r.all, q.Method+" "+q.URL.RequestURI())
		r.mu.Unlock()
		proxy.ServeHTTP(w, q)
	}))
	r.stop = func() {
		server.Listener.Close()
		server.CloseClientConnections()
	}
	t.Cleanup(r.stop)
	return server.URL
}

func serveView(t *testing.T, args ...string) *fleetView {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	in, out := io.Pipe()
	v := &fleetView{t: t, requests: &requests{}}
	cmd := program(NewEnv(out, io.Discard))
	cmd.SetArgs(append([]string{"ui", "--open=false", "--kubeconfig", env.Kubeconfig(),
		"--server", v.requests.inFrontOf(t, env.Config())}, args...))
	ended := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		out.CloseWithError(fmt.Errorf("it ended: %w", err))
		ended <- err
	}()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Errorf("machinist ui ended with %v", err)
		}
	})
	lines := bufio.NewReader(in)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("machinist ui printed %q: %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	link := regexp.MustCompile(`http://\S+`).FindString(line)
	jar, _ := cookiejar.New(nil)
	v.client = &http.Client{Jar: jar}
	answer, err := v.client.Get(link)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	at, _ := url.Parse(link)
	v.base = "http://" + at.Host
	return v
}

func (v *fleetView) do(answer *http.Response, err error) (int, string) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return answer.StatusCode, string(content)
}

// checkPage requests a page, and checks that the page contains all given texts. It returns the page.
func (v *fleetView) checkPage(path string, words ...string) string {
	v.t.Helper()
	code, page := v.do(v.client.Get(v.base + path))
	for _, w := range words {
		if code != http.StatusOK || !strings.Contains(page, w) {
			v.t.Errorf("GET %s: code %d, want %q in the page:\n%s", path, code, w, page)
		}
	}
	return page
}

// onlyReads checks that the fleet view has sent only permitted requests.
func (v *fleetView) onlyReads(namespace string) {
	v.t.Helper()
	v.requests.mu.Lock()
	defer v.requests.mu.Unlock()
	for _, request := range v.requests.all {
		method, uri, _ := strings.Cut(request, " ")
		at, _ := url.Parse(uri)
		dry := at.Query().Get("dryRun") == "All" || strings.HasSuffix(at.Path, "/selfsubjectaccessreviews")
		if strings.Contains(at.Path, "/secrets") || method != "GET" && !dry {
			v.t.Errorf("the view sent %s", request)
		}
		if namespace != "" && strings.Contains(at.Path, "/machinist.dev/v1beta1/") &&
			!strings.Contains(at.Path, "/namespaces/"+namespace+"/") {
			v.t.Errorf("the view sent a request for another namespace than %s: %s", namespace, request)
		}
	}
}

func TestFleetViewShowsResultsOfCommands(t *testing.T) {
	p := newTestFleet(t)
	p.fleet()
	p.create(&v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Spec: v1beta1.MachineClassSpec{
		Provider: "sim", ProviderSpec: &runtime.RawExtension{Raw: []byte("{}")}, CredentialsRef: &v1beta1.LocalRef{Name: "cloud"}}})
	p.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "cloud"}, StringData: map[string]string{"token": "do-not-read-this"}})
	v := serveView(t, "-n", p.namespace)
	at := "/machines/" + p.namespace + "/web-1-a"
	v.checkPage("/", "web", "ClassNotFound", "2 machines")
	v.checkPage("/machines", "web-1-a", "web-1-b")
	v.checkPage(at, "The MachineClass of the machine does not exist.", "Created", "does not exist")
	v.checkPage("/deployments/"+p.namespace+"/web", "web-1", "The MachineClass of the machine does not exist")
	v.checkPage(at, `<a href="/deployments/`+p.namespace+`/web">`)
	v.checkPage("/ownership", "web-1-a")
	v.checkPage("/zones", "without a zone")
	v.checkPage("/failures", "No failures are known.")
	v.checkPage("/orphans", "No provider")
	machines := v.checkPage("/machines")
	if strings.Contains(machines, "do-not-read-this") {
		t.Error("the page contains a Secret")
	}

	manifest := fmt.Sprintf(`{"apiVersion":"machinist.dev/v1beta1","kind":"MachineDeployment","metadata":{"name":"web","namespace":%q},
		"spec":{"replicas":5,"selector":{"matchLabels":{"pool":"web"}},"template":{"metadata":{"labels":{"pool":"web"}},
		"spec":{"classRef":{"name":"small"}}}}}`, p.namespace)
	plan := func(text string) (int, string) {
		return v.do(v.client.PostForm(v.base+"/plan", url.Values{"manifest": {text}}))
	}
	if code, page := plan(manifest); code != http.StatusOK || !strings.Contains(page, "3 machines would be created.") {
		t.Errorf("POST /plan: code %d:\n%s", code, page)
	}
	for text, want := range map[string]string{
		strings.Replace(manifest, `"replicas":5`, `"replicas":-5`, 1):         "spec.replicas",
		strings.Replace(manifest, p.namespace, "another", 1):                  "the namespace of machinedeployment",
		"kind: Pod\napiVersion: v1\n":                                         "the manifest contains no MachineDeployment",
		"a: b: c":                                                             "document 1",
		strings.Replace(manifest, `"MachineDeployment"`, `"MachineClass"`, 1): "the manifest contains no MachineDeployment",
		strings.Replace(manifest, `"replicas":5`, `"replicas":5,"typo":1`, 1): "typo",
	} {
		if code, page := plan(text); code != http.StatusUnprocessableEntity || !strings.Contains(page, want) {
			t.Errorf("POST /plan with %.60s…: code %d, want %q", text, code, want)
		}
	}
	d := &v1beta1.MachineDeployment{}
	if err := p.api.Get(context.Background(), client.ObjectKey{Namespace: p.namespace, Name: "web"}, d); err != nil ||
		*d.Spec.Replicas != 2 {
		t.Errorf("the plans changed the replicas to %d: %v", *d.Spec.Replicas, err)
	}
	v.onlyReads(p.namespace)
}

func TestFleetViewOfOneNamespace(t *testing.T) {
	p, other := newTestFleet(t), newTestFleet(t)
	p.fleet()
	other.fleet()
	user := "viewer-" + p.namespace
	p.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "viewer"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1beta1.GroupVersion.Group}, Resources: []string{"machines", "machinedeployments"},
			Verbs: []string{"get", "list", "watch"}}}})
	p.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "viewer"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}})
	env.Await(t, p.api, &corev1.ConfigMapList{}, "the role to work", func(*corev1.ConfigMapList) (bool, string) {
		seen := p.run("status", "--as", user)
		if seen.failed != nil {
			_ = p.api.Create(context.Background(),
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, GenerateName: "tick-"}})
		}
		return seen.failed == nil, fmt.Sprint(seen.failed)
	}, client.InNamespace(p.namespace))
	v := serveView(t, "-n", p.namespace, "--as", user)
	page := v.checkPage("/", "You may not list sets", "You may not list health checks", "You may not read leases")
	if strings.Contains(page, other.namespace) {
		t.Error("the page shows another namespace")
	}
	v.checkPage("/machines", "web-1-a")
	v.checkPage("/machines/"+p.namespace+"/web-1-a", "You may not list events")
	if code, _ := v.do(v.client.Get(v.base + "/machines/" + other.namespace + "/web-1-a")); code != http.StatusNotFound {
		t.Errorf("a machine of another namespace: code %d", code)
	}
	v.onlyReads(p.namespace)
	execute(t, "ui", "--open=false", "-A", "--as", user).fails(t, "you do not have the permission", "choose one with -n")
	execute(t, "ui", "--open=false", "-n", other.namespace, "--as", user).fails(t, "you do not have the permission", "machines")
}

// During an outage, the view must not report missing permissions or stopped processes, because such reports may be
// wrong.
func TestFleetViewKeepsStateDuringOutage(t *testing.T) {
	p := newTestFleet(t)
	p.fleet()
	p.lease("machinist-manager", 0)
	p.lease("machinist-provider-sim", 0)
	v := serveView(t, "-n", p.namespace)
	stream, err := v.client.Get(v.base + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	v.requests.stop()
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "data: ") {
			continue
		}
		if _, page := v.do(v.client.Get(v.base + "/")); strings.Contains(page, "has not answered for") {
			break
		}
	}
	page := v.checkPage("/", "has not answered for", "ClassNotFound", "2 machines")
	for _, wrong := range []string{"You may not", "is not running", "may not be running"} {
		if strings.Contains(page, wrong) {
			t.Errorf("the page contains %q while the cluster does not answer:\n%s", wrong, page)
		}
	}
	v.checkPage("/machines/"+p.namespace+"/web-1-a", "has not answered for", "The events could not be read")
	v.checkPage("/machines", "web-1-b")
}

func TestFleetViewListensOnlyOnLoopback(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":8080", "example.com:80", "8080"} {
		execute(t, "ui", "--open=false", "--listen", address).fails(t, "--listen", "loopback")
	}
}
