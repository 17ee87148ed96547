// Package fleet runs Machinist with a provider's example fleet in an end-to-end test, and provides operations on the
// fleet. The cloud is a stack.Backend.
package fleet

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/test/env"
)

const (
	// Namespace is the namespace of the fleet.
	Namespace = "default"
	// Machines is the number of machines in the example fleet.
	Machines = 3
)

// Fleet is an installation of Machinist with a cloud for one test.
type Fleet struct {
	*stack.Stack
	*testing.T
	// Control and Target are administrator clients for the control cluster and the target cluster.
	Control, Target client.WithWatch
	// Patience is the timeout of each wait. The default is env.Patience.
	Patience time.Duration
}

// Start starts a stack with the programs in a directory, such as "../../../bin", and stops it when the test ends. For
// a failed test, Start logs the end of the provider's log.
func Start(t *testing.T, bin string, o stack.Options) *Fleet {
	t.Helper()
	logf.SetLogger(logr.Discard())
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	o.BinDir, o.Dir, o.Output = bin, filepath.Join(t.TempDir(), "stack"), writer{t}
	s, err := stack.Start(context.Background(), o)
	if err != nil {
		t.Fatalf("start the stack: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			if log, err := os.ReadFile(s.Provider.LogPath()); err == nil {
				lines := strings.Split(strings.TrimSpace(string(log)), "\n")
				t.Logf("end of the log of the provider:\n%s", strings.Join(lines[max(0, len(lines)-40):], "\n"))
			}
		}
		if err := s.Stop(); err != nil {
			t.Errorf("stop the stack: %v", err)
		}
	})
	f := &Fleet{Stack: s, T: t, Patience: env.Patience}
	if f.Control, err = s.ControlClient(); err != nil {
		t.Fatal(err)
	}
	if f.Target, err = s.TargetClient(); err != nil {
		t.Fatal(err)
	}
	return f
}

type writer struct{ t *testing.T }

func (w writer) Write(line []byte) (int, error) {
	w.t.Log(strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

// Context returns the context of the test.
func (f *Fleet) Context() context.Context { return f.T.Context() }

// Apply creates the example fleet with the credentials of the cloud.
func (f *Fleet) Apply() {
	f.Helper()
	objects, err := f.Objects()
	if err != nil {
		f.Fatal(err)
	}
	for _, o := range objects {
		f.Create(o)
	}
}

// Create creates an object in the namespace of the fleet.
func (f *Fleet) Create(o client.Object) {
	f.Helper()
	o.SetNamespace(Namespace)
	if err := f.Control.Create(f.Context(), o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
		f.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// Class creates a copy of a class with another name and a changed providerSpec.
func (f *Fleet) Class(of, name string, change func(map[string]any)) *v1beta1.MachineClass {
	f.Helper()
	class := &v1beta1.MachineClass{}
	if err := f.Control.Get(f.Context(), client.ObjectKey{Namespace: Namespace, Name: of}, class); err != nil {
		f.Fatal(err)
	}
	var spec map[string]any
	if err := yaml.Unmarshal(class.Spec.ProviderSpec.Raw, &spec); err != nil {
		f.Fatal(err)
	}
	change(spec)
	raw, err := yaml.Marshal(spec)
	if err == nil {
		raw, err = yaml.YAMLToJSON(raw)
	}
	if err != nil {
		f.Fatal(err)
	}
	out := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name},
		Spec: *class.Spec.DeepCopy()}
	out.Spec.ProviderSpec = &runtime.RawExtension{Raw: raw}
	return out
}

// Deployment reads the MachineDeployment of the fleet.
func (f *Fleet) Deployment() *v1beta1.MachineDeployment {
	f.Helper()
	d := &v1beta1.MachineDeployment{}
	if err := f.Control.Get(f.Context(), client.ObjectKey{Namespace: Namespace, Name: examples.Deployment},
		d); err != nil {
		f.Fatal(err)
	}
	return d
}

// Change patches the MachineDeployment of the fleet.
func (f *Fleet) Change(mutate func(*v1beta1.MachineDeployment)) {
	f.Helper()
	d := f.Deployment()
	before := d.DeepCopy()
	mutate(d)
	if err := f.Control.Patch(f.Context(), d, client.MergeFrom(before)); err != nil {
		f.Fatal(err)
	}
}

// Scale sets the number of machines.
func (f *Fleet) Scale(n int32) {
	f.Helper()
	f.Change(func(d *v1beta1.MachineDeployment) { d.Spec.Replicas = &n })
}

// Delete deletes the MachineDeployment of the fleet.
func (f *Fleet) Delete() {
	f.Helper()
	if err := f.Control.Delete(f.Context(), f.Deployment()); err != nil {
		f.Fatal(err)
	}
}

// Await waits until ok returns true for the machines of the fleet, and returns these machines.
func (f *Fleet) Await(what string, ok func([]v1beta1.Machine) bool) []v1beta1.Machine {
	f.Helper()
	list := env.AwaitFor(f.T, f.Patience, f.Control, &v1beta1.MachineList{}, what, func(l *v1beta1.MachineList) (bool,
		string) {
		var state strings.Builder
		for i := range l.Items {
			m := &l.Items[i]
			fmt.Fprintf(&state, "\n%s %s deleted=%v %+v", m.Name, m.Status.Phase, !m.DeletionTimestamp.IsZero(),
				m.Status.Conditions)
		}
		return ok(l.Items), state.String()
	}, client.InNamespace(Namespace))
	return list.Items
}

// WaitRunning waits until the fleet has the requested number of machines. All machines must be in the phase Running
// and have the given class.
func (f *Fleet) WaitRunning(class string) []v1beta1.Machine {
	f.Helper()
	return f.RunningAre(Machines, class)
}

// RunningAre waits until the fleet has n machines. All machines must be in the phase Running and have the given
// class.
func (f *Fleet) RunningAre(n int, class string) []v1beta1.Machine {
	f.Helper()
	return f.Await(fmt.Sprintf("%d running machines of class %s", n, class), func(all []v1beta1.Machine) bool {
		return len(all) == n && !slices.ContainsFunc(all, func(m v1beta1.Machine) bool {
			return m.Status.Phase != v1beta1.MachineRunning || m.Status.NodeRef == nil || !m.DeletionTimestamp.IsZero() ||
				m.Status.Applied == nil || m.Status.Applied.ClassName != class
		})
	})
}

// WaitGone waits until all machines have been deleted, and checks that no Nodes, instances and parts of instances
// remain.
func (f *Fleet) WaitGone() {
	f.Helper()
	f.Await("no machine", func(all []v1beta1.Machine) bool { return len(all) == 0 })
	remaining, _, err := f.CountCloudResources(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	if remaining > 0 {
		f.Errorf("got %d instances or parts in the cloud, want 0", remaining)
	}
	nodes := &corev1.NodeList{}
	if err := f.Target.List(f.Context(), nodes); err != nil {
		f.Fatal(err)
	}
	if len(nodes.Items) > 0 {
		f.Errorf("got %d nodes, want 0", len(nodes.Items))
	}
}

// Common returns the provider IDs that both lists contain.
func Common(a, b []v1beta1.Machine) []string {
	inFirst := map[string]bool{}
	for i := range a {
		inFirst[a[i].Spec.ProviderID] = true
	}
	maps.DeleteFunc(inFirst, func(id string, _ bool) bool {
		return !slices.ContainsFunc(b, func(m v1beta1.Machine) bool { return m.Spec.ProviderID == id })
	})
	return slices.Sorted(maps.Keys(inFirst))
}
