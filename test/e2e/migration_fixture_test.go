//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/manifests/sources"
	"machinist.dev/machinist/test/standin"
)

type oldGroup struct {
	namespace string
	workload  types.NamespacedName
	leases    []string
	manifests string
}

var oldGroups = map[string]oldGroup{
	provider.SourceMachineK8s:  kubermatic("", "machine.k8s.io.yaml"),
	provider.SourceMachinesK8s: kubermatic("", "machine.k8s.io.yaml"),
	provider.SourceClusterK8s:  kubermatic(metav1.NamespaceSystem, "cluster.k8s.io.yaml"),
	provider.SourceGardener: {
		namespace: shoot, manifests: "machine.sapcloud.io.yaml",
		workload: types.NamespacedName{Namespace: shoot, Name: "machine-controller-manager"},
		leases:   []string{"machine-controller-manager", "machine-controller"},
	},
	provider.SourceOpenShift: {
		namespace: openshift, manifests: "machine.openshift.io.yaml",
		workload: types.NamespacedName{Namespace: openshift, Name: "machine-api-controllers"},
		leases: []string{"cluster-api-provider-sim-leader", "cluster-api-provider-machineset-leader",
			"cluster-api-provider-nodelink-leader"},
	},
}

const (
	shoot     = "shoot--fleet--one"
	openshift = "openshift-machine-api"
)

func kubermatic(namespace, manifests string) oldGroup {
	const name = "machine-controller"
	return oldGroup{namespace: namespace, manifests: manifests, leases: []string{name},
		workload: types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: name}}
}

var oldWeb = types.NamespacedName{Namespace: namespace, Name: "web"}

const (
	oldAccount = "old-account"
	oldWebhook = "old-webhook"
)

type oldFleet struct {
	*machinist
	oldGroup
	group             string
	controller        *child.Process
	logStart, logRead int
	before            fleetState

	// values are additional values in the manifests.
	values map[string]any
	// others are further controllers of the old system.
	others []*child.Process
	// staying is the number of machines that stay with the old system.
	staying int
}

func (m *machinist) oldFleet(group string, n int) *oldFleet {
	m.t.Helper()
	f := &oldFleet{machinist: m, oldGroup: oldGroups[group], group: group}
	m.removeDelays()
	if err := install.Apply(context.Background(), m.Control.Config(), sources.CRDs(group)...); err != nil {
		m.t.Fatal(err)
	}
	f.createPrerequisites(n)
	f.createObjects(n)
	f.buildController(f.leases...)
	f.startController()
	f.awaitFleet(n)
	return f
}

func (f *oldFleet) createPrerequisites(n int) {
	f.t.Helper()
	for _, o := range append(standin.JoinObjects(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.workload.Namespace}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: oldAccount},
			StringData: map[string]string{"token": f.CloudToken()}},
		newDeployment(f.workload, 1), newDeployment(oldWeb, int32(n)),
	) {
		if err := f.control.Create(context.Background(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			f.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

func (f *oldFleet) createObjects(n int) {
	f.t.Helper()
	for _, o := range f.objects(n) {
		// The API server serves a new CRD after a short delay.
		eventually(f.t, "the API server accepts "+o.GetKind()+" "+o.GetName(), func() (bool, string) {
			err := f.control.Create(context.Background(), o)
			return err == nil, fmt.Sprint(err)
		})
	}
}

// awaitFleet waits until all n machines have Nodes, and remembers the state of the fleet.
func (f *oldFleet) awaitFleet(n int) {
	f.t.Helper()
	f.awaitSettled(n)
	f.awaitPods(f.workload, oldWeb)
	f.before = f.state()
	if len(f.before.instances) != n || len(f.before.nodes) != n {
		f.t.Fatalf("got %d instances and %d Nodes for %d old machines", len(f.before.instances), len(f.before.nodes), n)
	}
}

func (f *oldFleet) objects(n int) (all []*unstructured.Unstructured) {
	f.t.Helper()
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("worker-%d", i+1)
	}
	var out bytes.Buffer
	text, err := template.ParseFiles(filepath.Join("testdata", "migration", f.manifests))
	if err == nil {
		values := map[string]any{"Group": f.group, "Namespace": f.namespace, "Machines": n, "Names": names,
			"Replicas": n - 2, "Token": f.CloudToken(), "UserData": string(f.oldUserData())}
		maps.Copy(values, f.values)
		err = text.Execute(&out, values)
	}
	for documents := yaml.NewYAMLOrJSONDecoder(&out, 4096); err == nil; {
		o := &unstructured.Unstructured{}
		if err = documents.Decode(&o.Object); len(o.Object) > 0 {
			all = append(all, o)
		}
	}
	if !errors.Is(err, io.EOF) {
		f.t.Fatal(err)
	}
	return all
}

// program builds a program of these tests.
func (f *oldFleet) program(name, source string) string {
	f.t.Helper()
	path := filepath.Join(f.Dir(), name)
	if out, err := exec.Command("go", "build", "-o", path, source).CombinedOutput(); err != nil {
		f.t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return path
}

func (f *oldFleet) buildController(leases ...string) {
	f.t.Helper()
	path := f.program("old-controller", "../standin/cmd")
	f.writeKubeconfig(path+".kubeconfig", "old-controller")
	err := os.WriteFile(path+".token", []byte(f.CloudToken()), 0o600)
	if err == nil {
		err = os.WriteFile(path+".user-data", f.oldUserData(), 0o600)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	leaseDuration := "3s"
	if f.group == provider.SourceClusterAPI {
		leaseDuration = "15s" // as its other controllers
	}
	f.controller = &child.Process{Name: "old-controller", Path: path, Dir: f.Dir(), Args: []string{
		"--group=" + f.group, "--namespace=" + f.namespace, "--kubeconfig=" + path + ".kubeconfig",
		"--lease-duration=" + leaseDuration, "--workload=" + f.workload.String(),
		"--cloud-endpoint=" + f.CloudURL(), "--cloud-token-file=" + path + ".token",
		"--user-data-file=" + path + ".user-data",
	}}
	for _, name := range leases {
		f.controller.Args = append(f.controller.Args, "--lease="+name)
	}
	f.killAtEnd(f.controller)
}

// writeKubeconfig writes the kubeconfig of an old controller, which has all permissions. Only the fence of the
// migration can stop the controller.
func (f *oldFleet) writeKubeconfig(path, user string) {
	f.t.Helper()
	config, err := f.Control.UserConfig(user, "system:masters")
	if err == nil {
		err = controlplane.WriteKubeconfig(path, config)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// killAtEnd kills a process at the end of the test. If the test has failed, killAtEnd logs the end of its log.
func (f *oldFleet) killAtEnd(p *child.Process) {
	f.t.Cleanup(func() {
		if f.t.Failed() {
			f.t.Log(p.LogTail())
		}
		if err := p.Kill(); err != nil {
			f.t.Error(err)
		}
	})
}

func (m *machinist) oldUserData() []byte { return standin.UserData(m.Target.Endpoint(), m.Target.CA()) }

func newDeployment(name types.NamespacedName, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name.Name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "main", Image: "example.com/" + name.Name + ":1"}}}}},
	}
}

func (f *oldFleet) awaitPods(names ...types.NamespacedName) {
	f.t.Helper()
	for _, name := range names {
		env.Await(f.t, f.target, &appsv1.DeploymentList{}, "the pods of "+name.String(),
			func(l *appsv1.DeploymentList) (bool, string) {
				i := slices.IndexFunc(l.Items, func(d appsv1.Deployment) bool { return d.Name == name.Name })
				return i >= 0 && l.Items[i].Status.ReadyReplicas == *l.Items[i].Spec.Replicas,
					fmt.Sprintf("%d Deployments", len(l.Items))
			}, client.InNamespace(name.Namespace))
	}
}

func (f *oldFleet) killController() {
	f.t.Helper()
	if err := f.controller.Kill(); err != nil {
		f.t.Fatal(err)
	}
}

// startController starts the controller without waiting until the controller leads, because a fence may prevent that.
func (f *oldFleet) startController() {
	f.t.Helper()
	f.logStart = len(f.log())
	f.logRead = f.logStart
	if err := f.controller.Start(); err != nil {
		f.t.Fatal(err)
	}
}

func (f *oldFleet) log() []string {
	f.t.Helper()
	content, err := os.ReadFile(f.controller.LogPath())
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}
	return slices.Collect(strings.Lines(string(content)))
}

func (f *oldFleet) changes() []string {
	f.t.Helper()
	return slices.DeleteFunc(f.log()[f.logStart:], func(line string) bool {
		return !strings.Contains(line, "msg=change ")
	})
}

// awaitSettled waits until the controller leads and has nothing left to do for its n machines. Each further call waits
// until the controller has settled once more.
func (f *oldFleet) awaitSettled(n int) {
	f.t.Helper()
	f.awaitLog(fmt.Sprintf("msg=settled machines=%d\n", n))
}

func (f *oldFleet) awaitLog(text string) {
	f.t.Helper()
	eventually(f.t, "the old controller logs "+text, func() (bool, string) {
		lines := f.log()
		i := slices.IndexFunc(lines[f.logRead:], func(line string) bool { return strings.Contains(line, text) })
		f.logRead += i + 1
		return i >= 0, strings.Join(lines[max(0, len(lines)-1):], "")
	})
}

func (f *oldFleet) scaleWorkload(replicas int) {
	f.t.Helper()
	workload := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: f.workload.Namespace, Name: f.workload.Name}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	if err := f.control.Patch(context.Background(), workload, patch); err != nil {
		f.t.Fatal(err)
	}
}

// breakWebhook registers an admission webhook of the old system without a server. The failure policy of the webhook
// is Fail, so no old object can be updated or deleted.
func (f *oldFleet) breakWebhook() {
	f.t.Helper()
	fail, none := admissionv1.Fail, admissionv1.SideEffectClassNone
	object := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: oldWebhook},
		Webhooks: []admissionv1.ValidatingWebhook{{Name: "validation." + f.group, FailurePolicy: &fail, SideEffects: &none,
			ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{
				Namespace: f.workload.Namespace, Name: "gone"}},
			AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Update, admissionv1.Delete},
				Rule:       admissionv1.Rule{APIGroups: []string{f.group}, APIVersions: []string{"*"}, Resources: []string{"*"}}}}}}}
	if err := f.control.Create(context.Background(), object); err != nil {
		f.t.Fatal(err)
	}
}
