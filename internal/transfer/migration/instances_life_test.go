package migration

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// newAdoption returns a journey with a Migration of three instances, which have Nodes and no old system.
func newAdoption(t *testing.T) *journey {
	t.Helper()
	l := newJourney(t)
	class := classOfInstances(l.key.Namespace)
	l.must(l.admin.Create(l.ctx, class))
	for i, in := range l.cloud.located {
		found := foundInstance(in.Instance.NodeName)
		found.Metadata["pool"] = []string{"a", "b"}[i%2]
		l.cloud.found = append(l.cloud.found, found)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: found.Name}}
		l.must(l.admin.Patch(l.ctx, node, merge(`{"metadata":{"finalizers":null,"annotations":null}}`)))
		l.makeReady(node)
	}
	l.cloud.located = nil
	m := &v1beta1.Migration{}
	l.must(l.admin.Get(l.ctx, l.key, m))
	l.must(l.admin.Delete(l.ctx, m))
	l.key.Name = "adopt"
	l.must(l.admin.Create(l.ctx, &v1beta1.Migration{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.key.Namespace, Name: l.key.Name},
		Spec: v1beta1.MigrationSpec{Source: v1beta1.MigrationSourceInstances, Provider: "sim",
			Instances: &v1beta1.MigrationInstances{ClassRef: v1beta1.LocalRef{Name: class.Name}, GroupBy: "pool"}}}))
	l.pass()
	l.pass()
	l.stage(v1beta1.MigrationAdopt)
	l.watch = func(m *v1beta1.Migration) {
		objects := l.ownObjects()
		adopted := len(l.cloud.owners)
		unpaused := 0
		for _, o := range objects {
			if machine, is := o.(*v1beta1.Machine); is && !hasKey(machine.Annotations, v1beta1.AnnotationPaused) {
				unpaused++
			}
			set, is := o.(*v1beta1.MachineSet)
			if is && set.Labels[v1beta1.LabelFreeze] == "" && !m.Status.Phase.Irrevocable() {
				l.Errorf("in phase %s, the set %s is not frozen", m.Status.Phase, set.Name)
			}
		}
		if m.Status.Phase == v1beta1.MigrationAdopting && unpaused > 2*max(adopted, 1) {
			l.Errorf("%d machines are not paused while %d are adopted", unpaused, adopted)
		}
	}
	return l
}

func (l *journey) makeReady(node *corev1.Node) {
	l.Helper()
	node.Status = readyStatus()
	l.must(l.admin.Status().Update(l.ctx, node))
}

func (l *journey) nodesOfAdoption() map[string]string {
	l.Helper()
	nodes := map[string]string{}
	list := &corev1.NodeList{}
	l.must(l.admin.List(l.ctx, list))
	for _, n := range list.Items {
		if strings.HasPrefix(n.Name, l.from) {
			nodes[n.Name] = string(n.UID) + " " + n.Labels[v1beta1.NodeLabelMachine]
		}
	}
	return nodes
}

// Rule: adoption-touches-no-instance.
func TestAdoptionIsCompleted(t *testing.T) {
	l := newAdoption(t)
	m := l.runUntil(v1beta1.MigrationAdopted)
	if c := m.Status.Machines; c != (v1beta1.MigrationCounts{Total: 3, Old: 3, Copied: 3, Adopted: 3}) {
		t.Errorf("the counts are %+v", c)
	}
	// After the copy, neither another instance nor the tag of another system changes the result.
	l.cloud.found = append(l.cloud.found, foundInstance("late"))
	l.cloud.found[0].OtherSystem = "another system"
	l.stage(v1beta1.MigrationCommit)
	l.runUntil(v1beta1.MigrationCompleted)
	l.fenceIsDown()
	if n := len(l.cloud.owners); n != 3 || len(l.cloud.calls) > 0 {
		t.Errorf("%d instances are adopted, and the other calls are %v", n, l.cloud.calls)
	}
	replicas := map[string]int32{}
	for _, o := range l.ownObjects() {
		if hasKey(o.GetLabels(), v1beta1.LabelMigration) || hasKey(o.GetLabels(), v1beta1.LabelFreeze) {
			t.Errorf("%s %s still has a label of the migration", kindOf(o), o.GetName())
		}
		switch o := o.(type) {
		case *v1beta1.MachineDeployment:
			replicas[o.Name] = o.ReplicasOrDefault()
		case *v1beta1.MachineClass:
			if o.Generation != 1 {
				t.Errorf("the migration has changed the class %s", o.Name)
			}
		case *v1beta1.Machine:
			if hasKey(o.Annotations, v1beta1.AnnotationPaused) || metav1.GetControllerOf(o) == nil {
				t.Errorf("Machine %s is paused or has no set", o.Name)
			}
		}
	}
	if !maps.Equal(replicas, map[string]int32{"a": 2, "b": 1}) {
		t.Errorf("the deployments have the replicas %v", replicas)
	}
	l.cleanOld()
}

// Rule: migration-abort-restores.
func TestAdoptionIsAborted(t *testing.T) {
	l := newAdoption(t)
	before := l.nodesOfAdoption()
	l.runUntil(v1beta1.MigrationAdopted)
	l.stage(v1beta1.MigrationAbort)
	l.runUntil(v1beta1.MigrationAborted)
	l.fenceIsDown()
	if left := slices.Sorted(maps.Keys(l.ownObjects())); !slices.Equal(left, []string{"MachineClass/small"}) {
		t.Errorf("the objects that remain are %v", left)
	}
	if len(l.cloud.owners) > 0 {
		t.Errorf("%d instances still have Machinist's tags", len(l.cloud.owners))
	}
	if after := l.nodesOfAdoption(); !maps.Equal(before, after) {
		t.Errorf("the Nodes were %v and are now %v", before, after)
	}
	l.cleanOld()
}

// A set with more machines than replicas deletes machines, even while it is frozen. Between the agreement and the
// copy, another instance can appear.
//
// Rule: adoption-adopts-the-plan.
func TestAdoptionStopsWhenInstancesChange(t *testing.T) {
	for _, phase := range []v1beta1.MigrationPhase{v1beta1.MigrationSettling, v1beta1.MigrationCopying} {
		t.Run(string(phase), func(t *testing.T) {
			l := newAdoption(t)
			l.runUntil(phase)
			late := foundInstance(l.from + "-late")
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: late.Name},
				Spec: corev1.NodeSpec{ProviderID: late.Instance.ProviderID}}
			l.must(l.admin.Create(l.ctx, node))
			l.makeReady(node)
			l.cloud.found = append(l.cloud.found, late)
			eventually(l, "the migration reports that the plan has changed", func() bool {
				m := l.pass()
				return m.Status.Phase == phase && strings.Contains(strings.Join(m.Status.Troubles, "\n"), planChanged)
			})
			machines := &v1beta1.MachineList{}
			l.must(l.admin.List(l.ctx, machines, client.InNamespace(l.key.Namespace)))
			if len(machines.Items) > 0 {
				t.Errorf("%d Machines were created for another plan", len(machines.Items))
			}
			l.must(l.admin.Delete(l.ctx, node))
			l.stage(v1beta1.MigrationAbort)
			l.runUntil(v1beta1.MigrationAborted)
			l.cleanOld()
		})
	}
}

func TestAdoptionsOverlap(t *testing.T) {
	l := newAdoption(t)
	for _, name := range []string{"other", "elsewhere"} {
		class := classOfInstances(l.key.Namespace)
		class.Name, class.Spec.ProviderSpec.Raw = name, []byte(`{"size":"`+name+`"}`)
		l.must(l.admin.Create(l.ctx, class))
	}
	first := &v1beta1.Migration{}
	l.must(l.admin.Get(l.ctx, l.key, first))
	older, named := l.key, l.cloud.found[0].Name
	for name, c := range map[string]struct {
		class  string
		names  []string
		blocks string
	}{
		"same class":      {class: "small", blocks: "3 instances, for example instance "},
		"another class":   {class: "other", names: []string{named}, blocks: "instance " + named + "."},
		"other instances": {class: "small", names: []string{"none"}},
		"another account": {class: "elsewhere"},
	} {
		spec := first.Spec.DeepCopy()
		spec.Stage, spec.PlanHash = v1beta1.MigrationPlan, ""
		spec.Instances.ClassRef.Name, spec.Instances.Names = c.class, c.names
		l.key.Name = strings.ReplaceAll(name, " ", "-")
		l.cloud.emptyAccount = ""
		if c.class == "elsewhere" {
			l.cloud.emptyAccount = `"small"`
		}
		eventually(l, "the API server creates a younger Migration", func() bool {
			younger := &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Namespace: l.key.Namespace, Name: l.key.Name},
				Spec: *spec}
			l.must(l.admin.Create(l.ctx, younger))
			if first.CreationTimestamp.Before(&younger.CreationTimestamp) || first.UID < younger.UID {
				return true
			}
			l.must(l.admin.Delete(l.ctx, younger))
			return false
		})
		l.pass()
		got := l.pass()
		l.must(l.admin.Delete(l.ctx, got))
		l.key = older
		var messages []string
		for _, f := range got.Status.Findings {
			if f.Code == CodeOverlaps {
				messages = append(messages, f.Message)
			}
		}
		text := strings.Join(messages, "\n")
		if c.blocks == "" && text != "" || c.blocks != "" && !strings.Contains(text, "The older Migration "+older.String()+
			" also adopts "+c.blocks) {
			t.Errorf("%s: the Migration is blocked by %q", name, text)
		}
	}
	l.cleanOld()
}
