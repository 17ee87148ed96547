package demo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"machinist.dev/machinist/internal/cli/printer"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
)

const (
	namespace  = "default"
	deployment = "workers"
)

// fleet is the fleet of the examples, adapted to the cloud of the stack.
type fleet struct {
	client.Client
	objects func() ([]client.Object, error)
}

// create sends the objects of the example to the API server, as a user would. If declare is not nil, create first calls
// it with each object, and declare may change the object.
func (f fleet) create(ctx context.Context, declare func(client.Object)) error {
	objects, err := f.objects()
	if err != nil {
		return err
	}
	for _, o := range objects {
		o.SetNamespace(namespace)
		if declare != nil {
			declare(o)
		}
		if err := f.Create(ctx, o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

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

type snapshot struct {
	deployment *v1beta1.MachineDeployment // nil if the deployment does not exist
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

// isRunning reports whether the fleet has exactly n machines of the class, all Running and with a Node.
func (s snapshot) isRunning(n int, class string) bool {
	for i := range s.machines {
		m := &s.machines[i]
		if m.Status.Phase != v1beta1.MachineRunning || m.Status.NodeRef == nil || m.Spec.ClassRef == nil ||
			m.Spec.ClassRef.Name != class || !m.DeletionTimestamp.IsZero() {
			return false
		}
	}
	d := s.deployment
	return len(s.machines) == n && d != nil && d.Status.ObservedGeneration == d.Generation &&
		int(d.Status.AvailableReplicas) == n && int(d.Status.UpdatedReplicas) == n
}

// checkKept returns an error if one of the given machines was deleted, is being deleted, or is marked for replacement.
func (s snapshot) checkKept(before []v1beta1.Machine) error {
	for i := range before {
		name := before[i].Name
		at := slices.IndexFunc(s.machines, func(m v1beta1.Machine) bool { return m.UID == before[i].UID })
		switch {
		case at < 0:
			return fmt.Errorf("machine %s no longer exists", name)
		case !s.machines[at].DeletionTimestamp.IsZero():
			return fmt.Errorf("machine %s is being deleted", name)
		case s.machines[at].Status.Phase == v1beta1.MachineFailed:
			return fmt.Errorf("machine %s is Failed", name)
		case meta.IsStatusConditionTrue(s.machines[at].Status.Conditions, v1beta1.ConditionRemediationRequested):
			return fmt.Errorf("machine %s is marked for replacement", name)
		}
	}
	return nil
}

type size struct{ columns, rows int }

// minWideColumns is the minimum number of terminal columns for a table with the names of Nodes. A narrower table
// omits them, because they usually equal the names of the machines.
const minWideColumns = 100

// table returns the lines of a table that fits into a terminal, with one row left for the cursor. In a small terminal,
// running machines are omitted first.
func (s snapshot) table(of size, now time.Time) (lines []string) {
	if d := s.deployment; d != nil {
		lines = append(lines, fmt.Sprintf("md/%s: %d desired, %d live, %d up to date, %d ready, %d available",
			d.Name, d.ReplicasOrDefault(), d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas,
			d.Status.AvailableReplicas), "")
	}
	shown, rest := s.machines, snapshot{}
	if most := max(of.rows-1-len(lines)-1, 1); len(shown) > most {
		byNeed := slices.Clone(shown)
		slices.SortStableFunc(byNeed, func(a, b v1beta1.Machine) int {
			return cmp.Compare(displayOrder(&a), displayOrder(&b))
		})
		shown, rest.machines = byNeed[:most-1], byNeed[most-1:]
	}
	head := []string{"MACHINE", "PHASE", "NODE", "CLASS", "VERSION", "AGE", "WAITS FOR"}
	rows := make([][]string, len(shown))
	for i := range shown {
		m := &shown[i]
		node, class := "-", "-"
		if m.Status.NodeRef != nil {
			node = m.Status.NodeRef.Name
		}
		if m.Spec.ClassRef != nil {
			class = m.Spec.ClassRef.Name
		}
		rows[i] = []string{m.Name, cmp.Or(string(m.Status.Phase), "-"), node, class, cmp.Or(m.Status.Version, "-"),
			duration.HumanDuration(now.Sub(m.CreationTimestamp.Time)), waitsFor(m)}
	}
	if of.columns < minWideColumns {
		head = slices.Delete(head, 2, 3)
		for i, row := range rows {
			rows[i] = slices.Delete(row, 2, 3)
		}
	}
	var body strings.Builder
	_ = printer.Table(&body, head, rows) // A write to memory cannot fail.
	lines = append(lines, strings.Split(strings.TrimSuffix(body.String(), "\n"), "\n")...)
	if len(rest.machines) > 0 {
		lines = append(lines, "and "+rest.summary())
	}
	for i, line := range lines {
		lines[i] = printer.Shorten(strings.TrimRight(line, " "), of.columns)
	}
	return lines
}

func (s snapshot) fullTable() string {
	return strings.Join(s.table(size{200, len(s.machines) + 10}, time.Now()), "\n") + "\n"
}

// displayOrder returns 1 for a running machine and 0 for all other machines, which are shown first.
func displayOrder(m *v1beta1.Machine) int {
	if m.Status.Phase == v1beta1.MachineRunning && m.DeletionTimestamp.IsZero() {
		return 1
	}
	return 0
}

// summary returns the number of machines by phase in one line, for outputs that are not a terminal.
func (s snapshot) summary() string {
	phases := map[v1beta1.MachinePhase]int{}
	for i := range s.machines {
		phase := s.machines[i].Status.Phase
		if !s.machines[i].DeletionTimestamp.IsZero() {
			phase = v1beta1.MachineDeleting
		}
		phases[cmp.Or(phase, v1beta1.MachinePending)]++
	}
	text := wording.Count(len(s.machines), "machine")
	for _, p := range []v1beta1.MachinePhase{v1beta1.MachinePending, v1beta1.MachineProvisioning,
		v1beta1.MachineProvisioned, v1beta1.MachineRunning,
		v1beta1.MachineUnhealthy, v1beta1.MachineUpdating, v1beta1.MachineFailed, v1beta1.MachineDeleting} {
		if n := phases[p]; n > 0 {
			text += fmt.Sprintf(", %d %s", n, p)
		}
	}
	return text
}

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
