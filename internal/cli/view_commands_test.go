package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/internal/health/orphans/ledger"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/env/inmemory"
)

// testFleet is a namespace with objects in states that the controllers produce.
type testFleet struct {
	testing.TB
	api       client.WithWatch
	namespace string
}

func newTestFleet(t testing.TB) *testFleet {
	t.Helper()
	return &testFleet{TB: t, api: env.Client(t), namespace: env.Namespace(t)}
}

func (p *testFleet) create(o client.Object) {
	p.Helper()
	status := o.DeepCopyObject().(client.Object)
	o.SetNamespace(p.namespace)
	if err := p.api.Create(context.Background(), o); err != nil {
		p.Fatal(err)
	}
	switch o.(type) {
	case *v1beta1.Machine, *v1beta1.MachineDeployment, *v1beta1.MachineHealthCheck:
		status.SetNamespace(p.namespace)
		status.SetName(o.GetName())
		status.SetResourceVersion(o.GetResourceVersion())
		status.SetUID(o.GetUID())
		if err := p.api.Status().Update(context.Background(), status); err != nil {
			p.Fatal(err)
		}
		o.SetResourceVersion(status.GetResourceVersion())
	}
}

func spec() v1beta1.MachineSpec {
	return v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}}
}

func (p *testFleet) machine(name string, owner client.Object, conditions ...metav1.Condition) *v1beta1.Machine {
	p.Helper()
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1beta1.LabelProvider: "sim",
		"pool": "web"}}, Spec: spec()}
	if owner != nil {
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1beta1.GroupVersion.String(), Kind: "MachineSet",
			Name: owner.GetName(), UID: owner.GetUID(), Controller: ptr.To(true)}}
	}
	m.Status.Phase, m.Status.ObservedGeneration, m.Status.Conditions = v1beta1.MachinePending, 1, conditions
	p.create(m)
	return m
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute))}
}

// fleet creates the deployment web with a set and two machines. The class of the machines does not exist.
func (p *testFleet) fleet() *v1beta1.MachineSet {
	p.Helper()
	selector := metav1.LabelSelector{MatchLabels: map[string]string{"pool": "web"}}
	template := v1beta1.MachineTemplateSpec{ObjectMeta: v1beta1.TemplateMeta{Labels: selector.MatchLabels}, Spec: spec()}
	d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: v1beta1.MachineDeploymentSpec{Replicas: ptr.To[int32](2), Selector: selector, Template: template}}
	d.Status.ObservedGeneration, d.Status.CurrentRevision = 1, 1
	d.Status.Conditions = []metav1.Condition{condition(v1beta1.ConditionRollingOut, metav1.ConditionFalse,
		v1beta1.ReasonRolloutComplete, "")}
	p.create(d)
	s := &v1beta1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", Annotations: map[string]string{v1beta1.AnnotationRevision: "1"},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: v1beta1.GroupVersion.String(), Kind: "MachineDeployment", Name: d.Name, UID: d.UID,
					Controller: ptr.To(true)},
			}},
		Spec: v1beta1.MachineSetSpec{Replicas: ptr.To[int32](2), Selector: selector, Template: template},
	}
	p.create(s)
	missing := condition(v1beta1.ConditionLaunched, metav1.ConditionFalse, v1beta1.ReasonClassNotFound,
		"MachineClass \"small\"\x1b[2J does not exist")
	p.machine("web-1-a", s, missing)
	p.machine("web-1-b", s, missing)
	return s
}

func (p *testFleet) lease(name string, age time.Duration) {
	p.Helper()
	p.create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To("host"), LeaseDurationSeconds: ptr.To[int32](15),
		RenewTime: ptr.To(metav1.NewMicroTime(time.Now().Add(-age))),
	}})
}

func (p *testFleet) run(args ...string) outcome {
	p.Helper()
	return execute(p, append(args, "-n", p.namespace)...)
}

func TestStatusShowsFleetAndWaitingMachines(t *testing.T) {
	p := newTestFleet(t)
	p.run("status").succeeds(t).prints(t, "There are no machines", p.namespace)
	p.fleet()
	p.lease("machinist-manager", time.Second)
	p.lease("machinist-provider-sim", time.Hour)
	p.create(&v1beta1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "all"},
		Status: v1beta1.MachineHealthCheckStatus{
			ExpectedMachines: 2, Conditions: []metav1.Condition{condition(v1beta1.ConditionRemediationAllowed,
				metav1.ConditionFalse, v1beta1.ReasonMeltdown, "")},
		}})
	got := p.run("status").succeeds(t).prints(t, "web ", "NotReady", "ClassNotFound   2", "Meltdown",
		"The process machinist-provider-sim is not running. Its Lease was last renewed 60m ago", "2 machines, 2 waiting")
	if strings.Contains(got.out, "machinist-manager") || strings.Contains(got.out, "\x1b") {
		t.Errorf("wrote\n%q", got.out)
	}
	p.run("status", "md/web").succeeds(t).prints(t, "ClassNotFound")
	execute(t, "status", "-A").succeeds(t).prints(t, "NAMESPACE", p.namespace)

	var view fleet.Status
	if err := json.Unmarshal([]byte(p.run("status", "-o", "json").succeeds(t).out), &view); err != nil {
		t.Fatal(err)
	}
	if len(view.Deployments) != 1 || len(view.Waiting) != 1 || view.Waiting[0].Count != 2 || view.Machines != 2 ||
		view.Settled != 0 {
		t.Errorf("read %+v", view)
	}
	p.run("status", "-o", "yaml").succeeds(t).prints(t, "reason: ClassNotFound")
}

func TestTreeShowsOwnership(t *testing.T) {
	p := newTestFleet(t)
	p.fleet()
	p.machine("alone", nil)
	all := p.run("tree").succeeds(t).prints(t, "md/web", "`- ms/web-1", "   |- machine/web-1-a", "revision 1, current",
		"machine/alone")
	if strings.Contains(all.out, "\x1b") {
		t.Errorf("wrote\n%q", all.out)
	}
	one := p.run("tree", "machine/web-1-b").succeeds(t).prints(t, "md/web", "machine/web-1-b")
	if strings.Contains(one.out, "web-1-a") || strings.Contains(one.out, "alone") {
		t.Errorf("wrote\n%s", one.out)
	}
	p.run("tree", "ms", "web-1", "-o", "json").succeeds(t).prints(t, `"kind": "MachineSet"`, `"reason": "ClassNotFound"`)
}

func TestWhyExplainsWaiting(t *testing.T) {
	p := newTestFleet(t)
	set := p.fleet()
	p.lease("machinist-provider-sim", time.Second)
	p.run("why", "machine/web-1-a").succeeds(t).prints(t, "The MachineClass of the machine does not exist.",
		`Message:  MachineClass "small"[2J does not exist`, "You can:")
	p.run("why", "md/web").succeeds(t).prints(t, "2 machines: The MachineClass of the machine does not exist.",
		"Machines: web-1-a, web-1-b", "machinist-manager")
	p.run("why", "ms/web-1").succeeds(t).prints(t, "2 machines: ")

	m := p.machine("joined", set)
	m.Status.NodeRef = &v1beta1.NodeRef{Name: "node-of-" + p.namespace}
	if err := p.api.Status().Update(context.Background(), m); err != nil {
		t.Fatal(err)
	}
	// The command finds the machine of a Node in any namespace.
	execute(t, "why", "node/node-of-"+p.namespace).succeeds(t).prints(t, "machine/joined -n "+p.namespace)
	p.showsTimelines(t, set)
	var view why.View
	if err := json.Unmarshal([]byte(p.run("why", "ma", "web-1-a", "-o", "json").succeeds(t).out), &view); err != nil {
		t.Fatal(err)
	}
	if len(view.Findings) != 1 || view.Findings[0].Reason != v1beta1.ReasonClassNotFound ||
		!strings.Contains(view.Findings[0].Message, "\x1b") {
		t.Errorf("read %+v", view.Findings)
	}
}

func TestOrphansPrintsResultsOfProviders(t *testing.T) {
	p := newTestFleet(t)
	p.run("orphans", "--system-namespace", p.namespace).succeeds(t).prints(t, "No provider process has reported orphans yet")
	book := ledger.Store{Client: p.api, Namespace: p.namespace}
	page := ledger.Page{Provider: "sim", WriteTime: time.Now(), Period: 1800, Total: 2, Entries: []ledger.Entry{
		{ProviderID: "sim://1", Machine: p.namespace + "/m", UID: "u", Source: p.namespace + "/small", FirstSeen: time.Now(),
			Outcome: "Unconfirmed"},
		{ProviderID: "sim://2", Machine: "elsewhere/m", UID: "v", Source: p.namespace + "/small", FirstSeen: time.Now(),
			Outcome: "Delete"},
	}}
	if err := book.Keep(context.Background(), page); err != nil {
		t.Fatal(err)
	}
	p.lease("machinist-provider-sim", time.Second)
	mine := p.run("orphans").succeeds(t).prints(t, "Provider sim: 2 found (the process checks every 30m", "sim://1",
		"1 more in other namespaces")
	if strings.Contains(mine.out, "sim://2") {
		t.Errorf("wrote\n%s", mine.out)
	}
	p.run("orphans", "-A").succeeds(t).prints(t, "sim://1", "sim://2", "being removed")
	p.run("orphans", "-o", "json").succeeds(t).prints(t, `"providerID": "sim://1"`, `"running": true`)
}

func TestMissingPermissionIsReported(t *testing.T) {
	p := newTestFleet(t)
	p.fleet()
	user := "reader-of-" + p.namespace
	p.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1beta1.GroupVersion.Group}, Resources: []string{"machines"}, Verbs: []string{"get", "list"}},
	}})
	p.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}})
	// The role takes effect after a short delay.
	var seen outcome
	env.Await(t, p.api, &corev1.ConfigMapList{}, "the role to work", func(*corev1.ConfigMapList) (bool, string) {
		if seen = p.run("status", "--as", user); seen.failed != nil {
			_ = p.api.Create(context.Background(),
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, GenerateName: "tick-"}})
		}
		return seen.failed == nil, fmt.Sprint(seen.failed)
	}, client.InNamespace(p.namespace))
	seen.prints(t, "ClassNotFound", "You may not list deployments", "You may not list health checks",
		"You may not read leases")
	p.run("tree", "--as", user).succeeds(t).prints(t, "machine/web-1-a", "You may not list sets")
	p.run("why", "machine/web-1-a", "--as", user).succeeds(t).prints(t,
		"The MachineClass of the machine does not exist.", "You may not read machineset web-1",
		"You may not read leases")
	p.run("why", "node/nowhere", "--as", user).fails(t, "you may not list machines in all namespaces")
	p.run("why", "md/web", "--as", user).fails(t, "you do not have the permission", "machinedeployments")
	p.run("orphans", "--as", user).fails(t, "you do not have the permission", "configmaps")
}

var views = [][]string{{"status"}, {"status", "md/nix"}, {"tree"}, {"tree", "machine/nix"}, {"why", "machine/nix"},
	{"why", "node/nix"}, {"orphans"}}

func TestErrorsOfViewCommands(t *testing.T) {
	p := newTestFleet(t)
	p.run("status", "md/nix").fails(t, `machinedeployment "nix" not found in namespace "`+p.namespace+`"`)
	p.run("tree", "ms/nix").fails(t, `machineset "nix" not found in namespace "`+p.namespace+`"`)
	p.run("why", "machine/nix").fails(t, `machine "nix" not found in namespace "`+p.namespace+`"`)
	p.run("why", "nix").fails(t, `machine "nix" not found`)
	p.run("why", "md/nix").fails(t, `machinedeployment "nix" not found`)
	p.run("why", "ms/nix").fails(t, `machineset "nix" not found`)
	p.run("why", "node/nix-of-"+p.namespace).fails(t, "no machine in any namespace belongs to the Node")
	p.run("status", "machine/x").fails(t, `the type "machine" is not one of: machinedeployment`)
	p.run("tree", "pod/x").fails(t, `the type "pod" is not one of: machinedeployment, machineset, machine`)
	p.run("why", "pod/x").fails(t, `the type "pod" is not one of`, "node")
	p.run("why").fails(t, "machine/NAME")
	p.run("why", "machine/").fails(t, "the name is missing")
	p.run("orphans", "x").fails(t, "unknown command")
	p.run("tree", "md/x", "-A").fails(t, "--all-namespaces")
	p.run("status", "md/x", "-A").fails(t, "--all-namespaces")
	for _, view := range views {
		p.run(append(view, "-o", "xml")...).fails(t, `--output "xml": must be json, yaml or wide`)
		p.run(append(view, "--bogus")...).fails(t, "unknown flag: --bogus")
		p.run(append(view, "--as", "nobody")...).fails(t, "you do not have the permission")
		p.run(append(view, "--server", "https://127.0.0.1:1")...).fails(t, "https://127.0.0.1:1 does not answer")
		p.run(append(view, "--context", "nix")...).fails(t, "kubeconfig", "nix")
	}
}

func TestViewCommandsInClusterWithoutMachinist(t *testing.T) {
	other := inmemory.WithoutMachinist(t)
	for _, view := range views {
		executeAt(t, other, "", view...).fails(t, "does not serve Machinist's kinds", "CRDs")
	}
}

// pipe is a writer that stores the written text and signals each write.
type pipe struct {
	mu    sync.Mutex
	text  strings.Builder
	wrote chan struct{}
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := p.text.Write(b)
	select {
	case p.wrote <- struct{}{}:
	default:
	}
	return n, err
}

// await waits until the output contains the words, and returns the whole output.
func (p *pipe) await(t *testing.T, words string) string {
	t.Helper()
	deadline := time.NewTimer(env.Patience)
	defer deadline.Stop()
	for {
		p.mu.Lock()
		all := p.text.String()
		p.mu.Unlock()
		if strings.Contains(all, words) {
			return all
		}
		select {
		case <-p.wrote:
		case <-deadline.C:
			t.Fatalf("waited for %q; wrote\n%s", words, all)
		}
	}
}

func TestStatusWatchShowsChanges(t *testing.T) {
	p := newTestFleet(t)
	p.fleet()
	for name, terminal := range map[string]bool{"a pipe": false, "a terminal": true} {
		out := &pipe{wrote: make(chan struct{}, 1)}
		e := NewEnv(out, out)
		e.Terminal = terminal
		cmd := program(e)
		cmd.SetArgs([]string{"status", "-w", "-n", p.namespace, "--kubeconfig", env.Kubeconfig()})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- cmd.ExecuteContext(ctx) }()
		out.await(t, "MACHINES")
		added := "added-to-" + strings.ReplaceAll(name, " ", "-")
		p.machine(added, nil)
		all := out.await(t, added)
		if strings.Contains(all, "\x1b[H") != terminal || strings.Contains(all, "---\n") == terminal {
			t.Errorf("%s: wrote\n%q", name, all)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCompletionOfNames(t *testing.T) {
	p := newTestFleet(t)
	p.fleet()
	for words, want := range map[string]string{
		"status md/": "md/web", "tree ms/": "ms/web-1", "why machine/web-1-": "machine/web-1-a",
		"why ": "machinedeployment/web", "orphans ": ":4",
	} {
		command, typed, _ := strings.Cut(words, " ")
		var out strings.Builder
		cmd := program(NewEnv(&out, io.Discard))
		cmd.SetArgs([]string{"__complete", command, "--namespace=" + p.namespace, "--kubeconfig=" +
			env.Kubeconfig(), typed})
		err := cmd.ExecuteContext(context.Background())
		outcome{out: out.String(), failed: err}.succeeds(t).prints(t, want)
	}
}
