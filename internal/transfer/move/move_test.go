package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// The type clusters checks after each write that the fleet is safe.
//
// Rules: move-is-repeatable, move-stops-source-first and move-owners-come-last.
func TestMoveThatIsKilledAfterEachWriteCanBeRepeated(t *testing.T) {
	c := newClusters(t)
	c.fleet()
	c.killAt = 1
	times := 0
	for err := c.move(); err != nil; err = c.move() {
		if times++; !errors.Is(err, errKilled) || times > 100 {
			t.Fatalf("killed %d times: %v\n%s", times, err, strings.Join(c.reports, "\n"))
		}
	}
	c.checkArrived()
	if times < 25 {
		t.Errorf("the move took %d writes, too few for this test", times)
	}
}

func TestRepeatingFinishedMoveWritesNothing(t *testing.T) {
	c := newClusters(t)
	c.fleet()
	c.must(c.move())
	c.checkArrived()
	c.must(c.move())
	if c.writes > 0 {
		t.Errorf("%d writes", c.writes)
	}
}

// Rule: move-refuses-before-it-acts.
func TestProblemsAreReportedBeforeAnythingIsChanged(t *testing.T) {
	for name, test := range map[string]struct {
		prepare  func(*clusters, *Move)
		mentions string
	}{
		"a machine that a user paused": {func(c *clusters, _ *Move) {
			c.annotate("alone", v1beta1.AnnotationPaused, "")
		}, "is paused, so its instance would not be adopted"},
		"a machine that is being moved to another cluster": {func(c *clusters, _ *Move) {
			c.annotate("alone", movingTo, "a-third")
		}, "is being moved to cluster a-third"},
		"a machine without a class": {func(c *clusters, _ *Move) {
			m := &v1beta1.Machine{Spec: v1beta1.MachineSpec{Provider: "sim",
				ProviderSpec: &runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Size"}`)}}}
			m.Namespace, m.Name, m.Finalizers = c.namespace, "inline", []string{v1beta1.MachineFinalizer}
			c.must(c.source.Create(c.Context(), m))
		}, "inline has no class"},
		"another class with that name": {func(c *clusters, _ *Move) {
			class := &v1beta1.MachineClass{Spec: v1beta1.MachineClassSpec{Provider: "sim",
				ProviderSpec: &runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Else"}`)}}}
			class.Namespace, class.Name = c.namespace, "small"
			c.createInDestination(class)
		}, "the destination has another MachineClass"},
		"a deployment with that name": {func(c *clusters, _ *Move) {
			d := &v1beta1.MachineDeployment{}
			c.must(c.source.Get(c.Context(), client.ObjectKey{Namespace: c.namespace, Name: "web"}, d))
			d.ResourceVersion, d.Spec.Replicas = "", ptr.To[int32](0)
			c.createInDestination(d)
		}, "the destination has another MachineDeployment"},
		"same cluster":    {func(_ *clusters, m *Move) { m.Destination = m.Source }, "are the same cluster"},
		"same cluster ID": {func(_ *clusters, m *Move) { m.DestinationID = m.SourceID }, "both clusters have the cluster ID"},
		"a deployment that does not exist": {func(_ *clusters, m *Move) { m.Deployments = []string{"web", "wbe"} },
			`machinedeployment "wbe" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClusters(t)
			c.fleet()
			m := c.prepared()
			test.prepare(c, m)
			if err := m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), test.mentions) {
				t.Errorf("got %v, expected %q", err, test.mentions)
			}
			if c.writes > 0 {
				t.Errorf("%d writes", c.writes)
			}
		})
	}
}

func (c *clusters) annotate(machine, key, value string) {
	c.Helper()
	m := &v1beta1.Machine{}
	c.must(c.source.Get(c.Context(), client.ObjectKey{Namespace: c.namespace, Name: machine}, m))
	before := m.DeepCopy()
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[key] = value
	c.must(c.source.Patch(c.Context(), m, client.MergeFrom(before)))
}

func (c *clusters) createInDestination(o client.Object) {
	c.Helper()
	c.must(c.prepared().createNamespaces(c.Context(), &fleet{objects: []*object{{Object: map[string]any{
		"metadata": map[string]any{"namespace": c.namespace}}}}}))
	c.writes = 0
	c.must(c.destination.Create(c.Context(), o))
}

// Rule: move-stops-source-first.
func TestNothingIsCreatedBeforeTheSourceIsStopped(t *testing.T) {
	for name, wanted := range map[string]struct {
		begin func(*clusters)
		waits string
	}{
		"nothing runs":     {func(*clusters) {}, "machinist-manager of the source to confirm the freeze of"},
		"no provider runs": {(*clusters).freezeAll, "the provider of the source to confirm the pause of"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClusters(t)
			c.fleet()
			c.processesIdle = true
			m := c.prepared()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			waits, lists := false, 0
			m.Report = func(sentence string) {
				wanted.begin(c)
				waits = waits || strings.Contains(sentence, wanted.waits)
			}
			c.onList = func() { // The pause is long enough that a faulty move would continue.
				if waits {
					if lists++; lists == 100 {
						cancel()
					}
				}
			}
			if err := m.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			if there := c.machines(c.destination); len(there) > 0 {
				t.Errorf("%d machines are in the destination", len(there))
			}
		})
	}
}

func (c *clusters) freezeAll() {
	sets, deployments := &v1beta1.MachineSetList{}, &v1beta1.MachineDeploymentList{}
	c.must(c.source.List(c.Context(), sets, client.InNamespace(c.namespace)))
	c.must(c.source.List(c.Context(), deployments, client.InNamespace(c.namespace)))
	c.freeze(&sets.Items[0], &sets.Items[0].Status.Conditions)
	c.freeze(&deployments.Items[0], &deployments.Items[0].Status.Conditions)
}

// The source finishes a launch, replacement or deletion before the move pauses the machine.
//
// Rule: move-waits-for-work-under-way.
func TestMachineWithWorkUnderWayIsNotPaused(t *testing.T) {
	running := func() *v1beta1.Machine {
		m := &v1beta1.Machine{Spec: v1beta1.MachineSpec{ProviderID: "sim://a/b/c"}}
		m.Status.Instance = &v1beta1.InstanceStatus{State: v1beta1.InstanceRunning}
		return m
	}
	if why := unfinishedReason(running()); why != "" {
		t.Errorf("a running machine counts as unfinished: %s", why)
	}
	for name, change := range map[string]func(*v1beta1.Machine){
		"is being deleted": func(m *v1beta1.Machine) { m.DeletionTimestamp = ptr.To(metav1.Now()) },
		"has failed":       func(m *v1beta1.Machine) { m.Status.FailureReason = v1beta1.ReasonInstanceVanished },
		"has no instance":  func(m *v1beta1.Machine) { m.Spec.ProviderID, m.Status.Instance = "", nil },
		"is not up to date": func(m *v1beta1.Machine) {
			m.Status.Launch = &v1beta1.LaunchStatus{Step: v1beta1.LaunchStepReplacing}
		},
	} {
		m := running()
		change(m)
		if why := unfinishedReason(m); !strings.Contains(why, name) {
			t.Errorf("got %q, expected %q", why, name)
		}
	}
	updating := running()
	setCondition(&updating.Status.Conditions, v1beta1.ConditionUpToDate, false)
	if why := unfinishedReason(updating); !strings.Contains(why, "is not up to date") {
		t.Errorf("a machine that is being updated: %q", why)
	}
}

func TestMachineThatIsBeingLaunchedIsMovedLater(t *testing.T) {
	c := newClusters(t)
	c.fleet()
	late := &v1beta1.Machine{Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}}}
	late.Namespace, late.Name, late.Finalizers = c.namespace, "alone-too", []string{v1beta1.MachineFinalizer}
	c.must(c.source.Create(t.Context(), late))
	m := c.prepared()
	waited := false
	m.Report = func(sentence string) {
		if strings.Contains(sentence, "alone-too, which has no instance yet") && !waited {
			waited = true
			if n := len(c.machines(c.destination)); n > 0 {
				t.Errorf("%d machines are in the destination before all are paused", n)
			}
			late.Spec.ProviderID = "sim://a/b/late"
			c.must(c.source.Update(t.Context(), late))
			c.launch(c.source, late)
		}
	}
	c.must(m.Run(t.Context()))
	if !waited {
		t.Error("the move did not wait")
	}
	if n := len(c.machines(c.source)); n > 0 {
		t.Errorf("%d machines remain in the source", n)
	}
}

func TestEndedPauseStopsTheMove(t *testing.T) {
	c := newClusters(t)
	c.fleet()
	m := c.prepared()
	m.Report = func(sentence string) {
		if sentence != "Creating sets, deployments and health checks in the destination." {
			return
		}
		for _, machine := range c.machines(c.source) {
			if machine.Name == "alone" {
				before := machine.DeepCopy()
				delete(machine.Annotations, v1beta1.AnnotationPaused)
				c.processesIdle, c.exempt = true, "alone"
				c.must(c.source.Patch(t.Context(), &machine, client.MergeFrom(before)))
			}
		}
	}
	want := "the pause of Machine " + c.namespace + "/alone ended"
	if err := m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	for _, machine := range c.machines(c.source) {
		if machine.Name == "alone" && !slices.Contains(machine.Finalizers, v1beta1.MachineFinalizer) {
			t.Error("the move removed the finalizer of a machine on which the source acts")
		}
	}
}

// Rule: move-takes-what-belongs.
func TestDeploymentIsMovedWithObjectsThatBelongToIt(t *testing.T) {
	c := newClusters(t)
	c.fleet()
	c.machineCount = 2
	c.must(c.move("web"))
	if n := len(c.machines(c.destination)); n != 2 {
		t.Errorf("%d machines are in the destination, expected the 2 of the deployment", n)
	}
	left, err := c.prepared().gather(t.Context())
	c.must(err)
	var names []string
	for _, o := range left.objects {
		names = append(names, fmt.Sprintf("%s/%s", o.GetKind(), o.GetName()))
		if value := destinationOf(o); value != "" {
			t.Errorf("%s is marked as moving to %s", nameOf(o), value)
		}
	}
	// The machine without an owner needs the class, and the class needs the Secret.
	if want := []string{"Secret/credentials", "MachineClass/small", "Machine/alone"}; !slices.Equal(names, want) {
		t.Errorf("the source has %v, expected %v", names, want)
	}
	c.must(c.move("web"))
	c.must(c.move())
	c.checkArrived()
}

func TestWaitForAdoptionNamesTheReason(t *testing.T) {
	source := &v1beta1.Machine{Spec: v1beta1.MachineSpec{ProviderID: "sim://a/b/c"}}
	source.Status.NodeRef = &v1beta1.NodeRef{Name: "node"}
	copied := source.DeepCopy()
	copied.Status = v1beta1.MachineStatus{}
	setCondition(&copied.Status.Conditions, v1beta1.ConditionLaunched, false)
	copied.Status.Conditions[0].Reason = v1beta1.ReasonAdoptionRefused
	if why, err := waitForAdoption(source, copied); err != nil || !strings.Contains(why, v1beta1.ReasonAdoptionRefused) {
		t.Errorf("refused: %q, %v", why, err)
	}
	copied.Status.Instance = &v1beta1.InstanceStatus{}
	if why, err := waitForAdoption(source, copied); err != nil || !strings.Contains(why, "same target cluster") {
		t.Errorf("without its Node: %q, %v", why, err)
	}
	copied.Status.NodeRef = source.Status.NodeRef
	if why, err := waitForAdoption(source, copied); err != nil || why != "" {
		t.Errorf("adopted: %q, %v", why, err)
	}
	if _, err := waitForAdoption(source, nil); err == nil {
		t.Error("a missing copy is not an error")
	}
	source.DeletionTimestamp = ptr.To(metav1.Now())
	if _, err := waitForAdoption(source, nil); err == nil || !strings.Contains(err.Error(), "deleted from the source "+
		"before it was moved") {
		t.Errorf("deleted meanwhile: %v", err)
	}
	copied.Spec.ProviderID = "another"
	if _, err := waitForAdoption(source, copied); err == nil || !strings.Contains(err.Error(), "different instances") {
		t.Errorf("another instance: %v", err)
	}
}
