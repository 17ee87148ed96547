package demo

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/examples"
)

const (
	namespace  = "default"
	deployment = "workers"
)

// fleet is the sample fleet: the one of the examples, with the credentials of this stack's cloud.
type fleet struct {
	client.Client
	set         examples.Set
	credentials map[string]string
}

// create applies the example as a user would. declare, if set, may alter each object before.
func (f fleet) create(ctx context.Context, declare func(client.Object)) error {
	objects, err := f.set.Objects()
	if err != nil {
		return err
	}
	for _, o := range objects {
		o.SetNamespace(namespace)
		if secret, ok := o.(*corev1.Secret); ok && secret.Name == f.set.Credentials() {
			secret.StringData = f.credentials
		}
		if declare != nil {
			declare(o)
		}
		if err := f.Create(ctx, o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// change patches the sample deployment.
func (f fleet) change(ctx context.Context, what func(*v1beta1.MachineDeployment)) error {
	md := &v1beta1.MachineDeployment{}
	if err := f.Get(ctx, client.ObjectKey{Namespace: namespace, Name: deployment}, md); err != nil {
		return err
	}
	before := md.DeepCopy()
	what(md)
	return f.Patch(ctx, md, client.MergeFrom(before))
}

func watched() []client.ObjectList {
	return []client.ObjectList{&v1beta1.MachineDeploymentList{}, &v1beta1.MachineList{}}
}

// snapshot is the fleet at one moment.
type snapshot struct {
	deployment *v1beta1.MachineDeployment // nil when there is none
	machines   []v1beta1.Machine
}

func (f fleet) observe(ctx context.Context) (snapshot, error) {
	deployments := &v1beta1.MachineDeploymentList{}
	if err := f.List(ctx, deployments, client.InNamespace(namespace)); err != nil {
		return snapshot{}, err
	}
	machines := &v1beta1.MachineList{}
	if err := f.List(ctx, machines, client.InNamespace(namespace)); err != nil {
		return snapshot{}, err
	}
	s := snapshot{machines: machines.Items}
	for i := range deployments.Items {
		if deployments.Items[i].Name == deployment {
			s.deployment = &deployments.Items[i]
		}
	}
	slices.SortFunc(s.machines, func(a, b v1beta1.Machine) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return s, nil
}

// running reports whether there are exactly n machines, all Running Nodes of the class.
func (s snapshot) running(n int, class string) bool {
	for i := range s.machines {
		m := &s.machines[i]
		if m.Status.Phase != v1beta1.MachineRunning || m.Status.NodeRef == nil || m.Spec.ClassRef == nil || m.Spec.ClassRef.Name != class || !m.DeletionTimestamp.IsZero() {
			return false
		}
	}
	d := s.deployment
	return len(s.machines) == n && d != nil && d.Status.ObservedGeneration == d.Generation &&
		int(d.Status.AvailableReplicas) == n && int(d.Status.UpdatedReplicas) == n
}

// kept says which of the machines from before is gone, going or to be replaced.
func (s snapshot) kept(before []v1beta1.Machine) error {
	for i := range before {
		name := before[i].Name
		at := slices.IndexFunc(s.machines, func(m v1beta1.Machine) bool { return m.UID == before[i].UID })
		switch {
		case at < 0:
			return fmt.Errorf("machine %s is gone", name)
		case !s.machines[at].DeletionTimestamp.IsZero():
			return fmt.Errorf("machine %s is being deleted", name)
		case s.machines[at].Status.Phase == v1beta1.MachineFailed:
			return fmt.Errorf("machine %s is Failed", name)
		case meta.IsStatusConditionTrue(s.machines[at].Status.Conditions, v1beta1.ConditionRemediationRequested):
			return fmt.Errorf("machine %s is to be replaced", name)
		}
	}
	return nil
}

// table draws the snapshot for a terminal.
func (s snapshot) table() string {
	var out bytes.Buffer
	if d := s.deployment; d != nil {
		fmt.Fprintf(&out, "machinedeployment/%s: %d wanted, %d live, %d up to date, %d ready, %d available\n\n",
			d.Name, d.ReplicasOrDefault(), d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas)
	}
	w := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "MACHINE\tPHASE\tNODE\tCLASS\tVERSION\tAGE\tWAITS FOR")
	for i := range s.machines {
		m := &s.machines[i]
		node, class := "-", "-"
		if m.Status.NodeRef != nil {
			node = m.Status.NodeRef.Name
		}
		if m.Spec.ClassRef != nil {
			class = m.Spec.ClassRef.Name
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Name, cmp.Or(string(m.Status.Phase), "-"), node, class,
			cmp.Or(m.Status.Version, "-"), duration.HumanDuration(time.Since(m.CreationTimestamp.Time)), waitsFor(m))
	}
	_ = w.Flush()
	return out.String()
}

// line says the same in a few words, for where lines cannot be drawn over.
func (s snapshot) line() string {
	phases := map[v1beta1.MachinePhase]int{}
	for i := range s.machines {
		phase := s.machines[i].Status.Phase
		if !s.machines[i].DeletionTimestamp.IsZero() {
			phase = v1beta1.MachineDeleting
		}
		phases[cmp.Or(phase, v1beta1.MachinePending)]++
	}
	text := fmt.Sprintf("%d machines", len(s.machines))
	for _, p := range []v1beta1.MachinePhase{v1beta1.MachinePending, v1beta1.MachineProvisioning, v1beta1.MachineProvisioned, v1beta1.MachineRunning,
		v1beta1.MachineUnhealthy, v1beta1.MachineUpdating, v1beta1.MachineFailed, v1beta1.MachineDeleting} {
		if n := phases[p]; n > 0 {
			text += fmt.Sprintf(", %d %s", n, p)
		}
	}
	return text
}

// waitsFor is the reason of what is in the machine's way.
func waitsFor(m *v1beta1.Machine) string {
	kind := v1beta1.ConditionReady
	if !m.DeletionTimestamp.IsZero() {
		kind = v1beta1.ConditionDeleting
	}
	for _, c := range m.Status.Conditions {
		if c.Type == kind && (kind == v1beta1.ConditionDeleting || c.Status != metav1.ConditionTrue) {
			return c.Reason
		}
	}
	return ""
}
