//go:build e2e && linux

package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/manifests/sources"
	"machinist.dev/machinist/test/standin"
)

const (
	coreUser      = "cluster-api-core"
	bootstrapUser = "cluster-api-bootstrap"
)

// clusterAPI is the old system Cluster API. Its core and kubeadm bootstrap controllers are the original programs.
// Only the infrastructure provider for the simulated cloud is a stand-in.
var clusterAPI = oldGroup{
	namespace: "clusters", manifests: "cluster.x-k8s.io.yaml",
	workload: types.NamespacedName{Namespace: "capi-system", Name: "capi-controller-manager"},
	leases:   []string{"controller-leader-election-capi", "controller-leader-election-sim"},
}

// clusterAPIFleet creates a Cluster with n workers and one machine of the control plane.
func (m *machinist) clusterAPIFleet(n int) *oldFleet {
	m.t.Helper()
	f := &oldFleet{machinist: m, oldGroup: clusterAPI, group: provider.SourceClusterAPI, staying: 1}
	f.values = f.valuesOfClusterAPI()
	m.removeDelays()
	ofClusters := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}
	if err := m.control.Create(context.Background(), ofClusters); err != nil {
		m.t.Fatal(err)
	}
	f.createPrerequisites(n)
	var definitions []*unstructured.Unstructured
	for _, crd := range sources.LinkedCRDs(f.group) {
		if strings.HasPrefix(crd.GetName(), "sim") {
			crd.SetLabels(map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta1"}) // contract and version
			definitions = append(definitions, crd)
		}
	}
	if err := install.Apply(context.Background(), m.Control.Config(), definitions...); err != nil {
		m.t.Fatal(err)
	}
	module := f.moduleOfClusterAPI()
	f.others = []*child.Process{f.clusterAPIManager(coreUser, module, "core"),
		f.clusterAPIManager(bootstrapUser, module, "bootstrap/kubeadm")}
	f.createObjects(n)
	f.buildController(f.leases[1:]...) // The core manager has the first Lease.
	f.startController()
	f.awaitFleet(n + f.staying)
	return f
}

// moduleOfClusterAPI returns the folder of the module, which contains the definitions and webhooks of a release.
func (f *oldFleet) moduleOfClusterAPI() string {
	f.t.Helper()
	download := exec.Command("go", "mod", "download", "-json", "sigs.k8s.io/cluster-api")
	download.Dir, download.Env = "../../hack/clusterapi", append(os.Environ(), "GOWORK=off")
	out, err := download.Output()
	var module struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(out, &module)
	}
	if err != nil {
		f.t.Fatalf("download the module of Cluster API: %v\n%s", err, out)
	}
	return module.Dir
}

// clusterAPIManager installs the definitions and webhooks of a manager of Cluster API, and starts the manager.
func (f *oldFleet) clusterAPIManager(user, module, folder string) *child.Process {
	f.t.Helper()
	tool, err := exec.Command("../../hack/tool.sh", "clusterapi", "sigs.k8s.io/cluster-api/"+folder).Output()
	if err != nil {
		f.t.Fatalf("build %s of Cluster API: %v", folder, err)
	}
	port, err := child.FreePort()
	if err != nil {
		f.t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	dir, err := os.MkdirTemp("", "pod-") // The path of a socket must be short.
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := f.Control.WriteServerCertificate(dir, "tls", net.IPv4(127, 0, 0, 1)); err != nil {
		f.t.Fatal(err)
	}
	f.writeKubeconfig(filepath.Join(dir, "kubeconfig"), user)
	var objects []*unstructured.Unstructured
	for _, pattern := range []string{"crd/bases/*.yaml", "webhook/manifests.yaml"} {
		objects = append(objects, f.ofRelease(filepath.Join(module, folder, "config", pattern), address, user)...)
	}
	if err := install.Apply(context.Background(), f.Control.Config(), objects...); err != nil {
		f.t.Fatal(err)
	}
	api := strings.TrimPrefix(f.Control.Endpoint(), "https://")
	p := &child.Process{Name: user, Path: f.program("pod", "../standin/pod"), Dir: f.Dir(), Group: true,
		Args: []string{"-dir", dir, "-namespace", f.workload.Namespace, "-connect", api,
			"-publish", address + "=9443", "--", strings.TrimSpace(string(tool)), "--leader-elect",
			"--kubeconfig=" + filepath.Join(dir, "kubeconfig"), "--webhook-cert-dir=" + dir}}
	f.killAtEnd(p)
	if err := p.Start(); err != nil {
		f.t.Fatal(err)
	}
	return p
}

// ofRelease reads manifests of a release. The API server reaches the webhooks at an address instead of a Service.
func (f *oldFleet) ofRelease(pattern, address, user string) (all []*unstructured.Unstructured) {
	f.t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		f.t.Fatalf("no file matches %s: %v", pattern, err)
	}
	clientConfig := func(path string) map[string]any {
		ca := base64.StdEncoding.EncodeToString(f.Control.CA())
		return map[string]any{"url": "https://" + address + path, "caBundle": ca}
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, document := range strings.Split(string(text), "\n---\n") {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
				f.t.Fatalf("%s: %v", path, err)
			}
			if o.GetKind() == "CustomResourceDefinition" {
				// The names of the labels are the versions of the contract.
				o.SetLabels(map[string]string{"cluster.x-k8s.io/v1beta1": "v1beta1", "cluster.x-k8s.io/v1beta2": "v1beta2"})
				o.Object["spec"].(map[string]any)["conversion"] = map[string]any{"strategy": "Webhook",
					"webhook": map[string]any{"conversionReviewVersions": []any{"v1"}, "clientConfig": clientConfig("/convert")}}
			} else if webhooks, found := o.Object["webhooks"].([]any); found {
				o.SetName(user + "-" + o.GetName())
				for _, w := range webhooks {
					webhook := w.(map[string]any)
					path, _, _ := unstructured.NestedString(webhook, "clientConfig", "service", "path")
					webhook["clientConfig"] = clientConfig(path)
				}
			}
			all = append(all, o)
		}
	}
	return all
}

// valuesOfClusterAPI returns the values in the manifests of a Cluster.
func (f *oldFleet) valuesOfClusterAPI() map[string]any {
	f.t.Helper()
	admin, err := os.ReadFile(f.Target.Kubeconfig())
	if err != nil {
		f.t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(strings.TrimPrefix(f.Target.Endpoint(), "https://"))
	if err != nil {
		f.t.Fatal(err)
	}
	return map[string]any{"Kubeconfig": string(admin), "CA": string(f.Target.CA()), "Host": host, "Port": port,
		"BootstrapKubeconfig": standin.BootstrapKubeconfig(f.Target.Endpoint(), f.Target.CA())}
}

// parts returns the names of the objects that belong to single machines of Cluster API.
func (f *oldFleet) parts() (names []string) {
	f.t.Helper()
	for _, kind := range []schema.GroupVersionKind{
		{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Kind: "SimMachine"},
		{Group: "bootstrap.cluster.x-k8s.io", Version: "v1beta2", Kind: "KubeadmConfig"},
	} {
		for _, o := range f.list(kind) {
			names = append(names, kind.Kind+"/"+o.GetName())
		}
	}
	return names
}

func (f *oldFleet) cluster() *unstructured.Unstructured {
	f.t.Helper()
	all := f.list(schema.GroupVersionKind{Group: f.group, Version: "v1beta2", Kind: "Cluster"})
	if len(all) != 1 {
		f.t.Fatalf("got %d Clusters", len(all))
	}
	return &all[0]
}
