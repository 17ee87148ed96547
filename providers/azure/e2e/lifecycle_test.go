//go:build e2e

// Package e2e runs the Azure provider as a process of its own, between a real control plane and an Azure in memory,
// which it reaches over HTTPS.
package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/stack"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/backend"
	"machinist.dev/machinist/test/env"
)

const (
	namespace = "default"
	machines  = 3
)

// azure is a whole Machinist for one test.
type azure struct {
	*stack.Stack
	*testing.T
	control, target client.WithWatch
	cloud           *backend.Azure
}

func start(t *testing.T, o stack.Options) *azure {
	t.Helper()
	logf.SetLogger(logr.Discard())
	bin, err := filepath.Abs("../../../bin")
	if err != nil {
		t.Fatal(err)
	}
	cloud := &backend.Azure{}
	o.Backend, o.BinDir, o.Dir, o.Output = cloud, bin, filepath.Join(t.TempDir(), "stack"), writer{t}
	s, err := stack.Start(context.Background(), o)
	if err != nil {
		t.Fatalf("start the stack: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			if log, err := os.ReadFile(s.Provider.LogPath()); err == nil {
				lines := strings.Split(strings.TrimSpace(string(log)), "\n")
				t.Logf("end of the provider's log:\n%s", strings.Join(lines[max(0, len(lines)-40):], "\n"))
			}
		}
		if err := s.Stop(); err != nil {
			t.Errorf("stop the stack: %v", err)
		}
	})
	a := &azure{Stack: s, T: t, cloud: cloud}
	if a.control, err = s.ControlClient(); err != nil {
		t.Fatal(err)
	}
	if a.target, err = s.TargetClient(); err != nil {
		t.Fatal(err)
	}
	return a
}

// writer is a test's log.
type writer struct{ t *testing.T }

func (w writer) Write(line []byte) (int, error) {
	w.t.Log(strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

func TestAFleetLivesAtAzure(t *testing.T) {
	a := start(t, stack.Options{})
	a.fleet()
	first := a.running(examples.SmallClass)
	a.everyMachineHasItsParts(first, "Standard_D2s_v5", 0)
	for i := range first {
		m := &first[i]
		if m.Status.Instance == nil || m.Status.Instance.Zone != "westeurope-1" || len(m.Status.Addresses) < 2 ||
			m.Status.NodeRef == nil {
			t.Errorf("machine %s is reported as %+v with the addresses %v on node %v", m.Name, m.Status.Instance,
				m.Status.Addresses, m.Status.NodeRef)
		}
	}
	class := &v1beta1.MachineClass{}
	if err := a.control.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: examples.SmallClass},
		class); err != nil {
		t.Fatal(err)
	}
	if memory := class.Status.Capacity.Memory(); memory.Value() != 8<<30-100<<20 {
		t.Errorf("the capacity of the class is %v", class.Status.Capacity)
	}

	t.Log("a providerSpec that is wrong is refused by the provider's webhook, with its field")
	wrong := a.class("wrong", func(spec map[string]any) { spec["zone"] = "moon" })
	if err := a.control.Create(t.Context(), wrong); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "spec.providerSpec.zone") {
		t.Errorf("got %v", err)
	}

	t.Log("another class is another machine")
	a.change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = examples.LargeClass })
	second := a.running(examples.LargeClass)
	a.everyMachineHasItsParts(second, "Standard_D4s_v5", 1)
	if remaining := common(first, second); len(remaining) > 0 {
		t.Errorf("machines %v had to be replaced", remaining)
	}

	t.Log("other tags are put on the same machines, in place")
	a.create(a.class("retagged", func(spec map[string]any) { spec["tags"] = map[string]any{"team": "green"} }))
	a.change(func(d *v1beta1.MachineDeployment) {
		d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyInPlace}
		d.Spec.Template.Spec.ClassRef.Name = "retagged"
	})
	third := a.running("retagged")
	if remaining := common(second, third); len(remaining) != machines {
		t.Errorf("of the machines only %v were kept", remaining)
	}
	state := a.state()
	if state.Made != 2*machines {
		t.Errorf("Azure has made %d machines, want %d", state.Made, 2*machines)
	}
	for name, tags := range state.Tags {
		if _, old := tags["pool"]; old || tags["team"] != "green" || tags[provider.TagMachineUID] == "" {
			t.Errorf("virtual machine %s has the tags %v", name, tags)
		}
	}

	t.Log("everything goes")
	if err := a.control.Delete(t.Context(), a.deployment()); err != nil {
		t.Fatal(err)
	}
	a.gone()
}

// A provider that dies in the middle of a scale-up, and Azure losing answers meanwhile, make neither twins nor
// leftovers.
func TestACrashAndLostAnswersMakeNoTwins(t *testing.T) {
	a := start(t, stack.Options{})
	heal, err := a.cloud.Fault(t.Context(), map[string]any{"operation": "VirtualMachines_CreateOrUpdate",
		"loseAnswer": true, "times": 2})
	if err != nil {
		t.Fatal(err)
	}
	a.fleet()
	env.Await(t, a.control, &v1beta1.MachineList{}, "a launch", func(l *v1beta1.MachineList) (bool, string) {
		return slices.ContainsFunc(l.Items, func(m v1beta1.Machine) bool {
			return m.Status.Launch != nil || m.Spec.ProviderID != ""
		}), fmt.Sprint(len(l.Items))
	}, client.InNamespace(namespace))
	if err := a.Provider.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := a.Provider.Start(); err != nil {
		t.Fatal(err)
	}
	a.running(examples.SmallClass)
	if err := heal(); err != nil {
		t.Fatal(err)
	}
	if state := a.state(); state.Made != machines || len(state.Sizes) != machines {
		t.Errorf("Azure has made %d machines and has %d, want %d", state.Made, len(state.Sizes), machines)
	}
	if err := a.control.Delete(t.Context(), a.deployment()); err != nil {
		t.Fatal(err)
	}
	a.gone()
}

// fleet creates the example fleet.
func (a *azure) fleet() {
	a.Helper()
	objects, err := examples.Azure.Objects()
	if err != nil {
		a.Fatal(err)
	}
	for _, o := range objects {
		if s, ok := o.(*corev1.Secret); ok && s.Name == examples.Azure.Credentials() {
			s.StringData = a.Credentials()
		}
		a.create(o)
	}
}

func (a *azure) create(o client.Object) {
	a.Helper()
	o.SetNamespace(namespace)
	if err := a.control.Create(a.Context(), o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
		a.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// class is the example's large one under another name, with another providerSpec.
func (a *azure) class(name string, change func(map[string]any)) *v1beta1.MachineClass {
	a.Helper()
	large := &v1beta1.MachineClass{}
	if err := a.control.Get(a.Context(), client.ObjectKey{Namespace: namespace, Name: examples.LargeClass},
		large); err != nil {
		a.Fatal(err)
	}
	var spec map[string]any
	if err := yaml.Unmarshal(large.Spec.ProviderSpec.Raw, &spec); err != nil {
		a.Fatal(err)
	}
	change(spec)
	raw, err := yaml.Marshal(spec)
	if err == nil {
		raw, err = yaml.YAMLToJSON(raw)
	}
	if err != nil {
		a.Fatal(err)
	}
	out := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: *large.Spec.DeepCopy()}
	out.Spec.ProviderSpec = &runtime.RawExtension{Raw: raw}
	return out
}

func (a *azure) deployment() *v1beta1.MachineDeployment {
	a.Helper()
	d := &v1beta1.MachineDeployment{}
	if err := a.control.Get(a.Context(), client.ObjectKey{Namespace: namespace, Name: examples.Deployment},
		d); err != nil {
		a.Fatal(err)
	}
	return d
}

func (a *azure) change(what func(*v1beta1.MachineDeployment)) {
	a.Helper()
	d := a.deployment()
	before := d.DeepCopy()
	what(d)
	if err := a.control.Patch(a.Context(), d, client.MergeFrom(before)); err != nil {
		a.Fatal(err)
	}
}

// running waits until there are the fleet's machines and no others, all Running nodes made from the class.
func (a *azure) running(class string) []v1beta1.Machine {
	a.Helper()
	list := env.Await(a.T, a.control, &v1beta1.MachineList{}, "running machines of class "+
		class, func(l *v1beta1.MachineList) (bool, string) {
		var state strings.Builder
		ok := len(l.Items) == machines
		for i := range l.Items {
			m := &l.Items[i]
			is := m.Status.Phase == v1beta1.MachineRunning && m.Status.NodeRef != nil && m.DeletionTimestamp.IsZero() &&
				m.Status.Applied != nil && m.Status.Applied.ClassName == class
			ok = ok && is
			fmt.Fprintf(&state, "\n%s %s deleted=%v %+v", m.Name, m.Status.Phase, !m.DeletionTimestamp.IsZero(),
				m.Status.Conditions)
		}
		return ok, state.String()
	}, client.InNamespace(namespace))
	return list.Items
}

func (a *azure) state() *backend.State {
	a.Helper()
	state, err := a.cloud.State(a.Context())
	if err != nil {
		a.Fatal(err)
	}
	return state
}

// everyMachineHasItsParts holds Azure to having what the machines are made of, under the names that nodes have, and
// nothing else.
func (a *azure) everyMachineHasItsParts(all []v1beta1.Machine, size string, dataDisks int) {
	a.Helper()
	var want []string
	state := a.state()
	for i := range all {
		node := all[i].Status.NodeRef.Name
		if state.Sizes[node] != size || state.Tags[node][provider.TagMachineUID] != string(all[i].UID) {
			a.Errorf("virtual machine %s has size %q and the tags %v", node, state.Sizes[node], state.Tags[node])
		}
		if !strings.HasSuffix(all[i].Spec.ProviderID, "/resourceGroups/machines/providers/Microsoft.Compute/virtualMachines/"+
			node) {
			a.Errorf("machine %s on node %s has the provider ID %s", all[i].Name, node, all[i].Spec.ProviderID)
		}
		want = append(want, "virtualMachines/machines/"+node, "networkInterfaces/machines/"+node+
			"-nic-0", "disks/machines/"+node+"-os")
		for lun := range dataDisks {
			want = append(want, fmt.Sprintf("disks/machines/%s-data-%d", node, lun))
		}
	}
	slices.Sort(want)
	if !slices.Equal(state.Resources, want) {
		a.Errorf("Azure has %v, want %v", state.Resources, want)
	}
}

// gone waits until there is no machine, and then wants nothing to be left.
func (a *azure) gone() {
	a.Helper()
	env.Await(a.T, a.control, &v1beta1.MachineList{}, "no machine", func(l *v1beta1.MachineList) (bool, string) {
		return len(l.Items) == 0, fmt.Sprintf("%d machines", len(l.Items))
	}, client.InNamespace(namespace))
	if left := a.state().Resources; len(left) > 0 {
		a.Errorf("at Azure there is left: %v", left)
	}
	nodes := &corev1.NodeList{}
	if err := a.target.List(a.Context(), nodes); err != nil {
		a.Fatal(err)
	}
	if len(nodes.Items) > 0 {
		a.Errorf("%d nodes are left", len(nodes.Items))
	}
}

// common are the provider IDs that both have.
func common(a, b []v1beta1.Machine) []string {
	had := map[string]bool{}
	for i := range a {
		had[a[i].Spec.ProviderID] = true
	}
	maps.DeleteFunc(had, func(id string, _ bool) bool {
		return !slices.ContainsFunc(b, func(m v1beta1.Machine) bool { return m.Spec.ProviderID == id })
	})
	return slices.Sorted(maps.Keys(had))
}
