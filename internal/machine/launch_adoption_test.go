package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

// adoptable creates a class "small" that allows adoption, and an instance without tags. It returns the ID of the
// instance.
func (w *world) adoptable() string {
	w.t.Helper()
	w.class("small", joinsWithToken)
	w.allow("small", v1beta1.AdoptionAllow)
	id := "fake://" + w.namespace + "/legacy-1"
	w.createUntagged(id, nodeNameOf(w.namespace, "legacy"))
	return id
}

func (w *world) allow(class string, policy v1beta1.AdoptionPolicy) {
	w.t.Helper()
	o := &v1beta1.MachineClass{}
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: class}, o); err != nil {
		w.t.Fatal(err)
	}
	o.Spec.Adoption = policy
	if err := w.api.Update(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) nodeOfAnother(id string) *corev1.Node {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeNameOf(w.namespace, "legacy")}}
	node.Spec.ProviderID = id
	w.create(node)
	w.setNodeReady(node.Name, corev1.ConditionTrue)
	return node
}

// withProviderID makes a Machine look like one that a user creates for an existing instance. Such a Machine has a
// provider ID, and no finalizers and labels.
func withProviderID(id string) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) { m.Finalizers, m.Labels, m.Spec.ProviderID = nil, nil, id }
}

// createUntagged creates a running instance without tags, which another system created an hour ago.
func (w *world) createUntagged(id, nodeName string) {
	w.cloud.Put("", provider.Instance{ProviderID: id, State: provider.StateRunning, NodeName: nodeName, Type: "large",
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.1.1.1"}},
		Zone:      "r-2", LaunchTime: w.clock.Now().Add(-time.Hour)})
}

func (w *world) instance(id string) *fakecloud.Instance {
	for _, in := range w.cloud.LiveInstances() {
		if in.ProviderID == id {
			return &in
		}
	}
	return nil
}

func (w *world) wantUntouched(id string) {
	w.t.Helper()
	if in := w.instance(id); in == nil || in.MachineUID != "" || in.ClusterID != "" || in.State != provider.StateRunning {
		w.t.Errorf("the instance was touched: %+v", in)
	}
	if calls := slices.DeleteFunc(w.effects.calls(), func(c string) bool { return c == "cloud get" }); len(calls) > 0 {
		w.t.Errorf("calls to the cloud: %q", calls)
	}
	if writes := w.effects.since("API Node"); len(writes) > 0 {
		w.t.Errorf("writes to nodes: %q", writes)
	}
}

// Rules adoption-by-provider-id, adopted-counts-as-declared: after the adoption, the machine behaves like any other
// machine. The instance counts as created from the machine's class, and is deleted with the machine.
func TestAnExistingInstanceIsAdopted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.adoptable()
	node := w.nodeOfAnother(id)
	w.createMachine("m", withProviderID(id))
	m := w.untilPhase("m", v1beta1.MachineRunning)
	w.wantCondition(m, v1beta1.ConditionLaunched, metav1.ConditionTrue, v1beta1.ReasonInstanceAdopted)
	if in := w.instance(id); in.MachineUID != m.UID || in.ClusterID != "cluster" || in.MachineKey != w.namespace+"/m" {
		t.Errorf("the tags are %q, %q, %q", in.ClusterID, in.MachineUID, in.MachineKey)
	}
	if m.Status.NodeRef == nil || m.Status.NodeRef.UID != node.UID || m.Status.Instance.Zone != "r-2" ||
		m.Status.Launch != nil {
		t.Errorf("status: %+v", m.Status)
	}
	want := v1beta1.AppliedStatus{ClassName: "small", ProviderSpecHash: m.Status.Applied.ProviderSpecHash}
	if *m.Status.Applied != want || want.ProviderSpecHash == "" {
		t.Errorf("applied is %+v, want %+v", m.Status.Applied, want)
	}
	calls := w.effects.calls()
	if !slices.Equal(calls, []string{"cloud get", "cloud adopt"}) {
		t.Errorf("calls to the cloud: %q", calls)
	}
	w.wantRest("m")
	w.delete("m")
	w.untilGone("m")
	w.wantNothingLeft("m")
	if w.getNode(node.Name) != nil {
		t.Error("the node remains")
	}
}

// Rule adoption-by-provider-id: without the permission of the class, the cloud is not called. A machine with an inline
// spec has no class, so it cannot adopt an instance.
func TestAdoptionNeedsPermissionOfTheClass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.adoptable()
	w.allow("small", v1beta1.AdoptionForbid)
	w.createMachine("m", withProviderID(id))
	other := "fake://" + w.namespace + "/legacy-2"
	w.createUntagged(other, "another")
	w.createMachine("inline", withProviderID(other), func(m *v1beta1.Machine) {
		m.Spec.ClassRef, m.Spec.Provider = nil, fakeProvider
		m.Spec.ProviderSpec = &runtime.RawExtension{Raw: []byte(`{"kind":"Fake"}`)}
	})
	for _, name := range []string{"m", "inline"} {
		w.reconcile(name)
		m := w.get(name)
		w.wantPhase(m, v1beta1.MachinePending)
		w.wantCondition(m, v1beta1.ConditionLaunched, metav1.ConditionFalse, v1beta1.ReasonAdoptionForbidden)
	}
	if calls := w.effects.calls(); len(calls) > 0 {
		t.Errorf("calls to the cloud: %q", calls)
	}
	w.step(24 * time.Hour)
	w.wantRest("m")
	w.allow("small", v1beta1.AdoptionAllow)
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionLaunched, metav1.ConditionTrue, v1beta1.ReasonInstanceAdopted)
}

// Rule unsuitable-instance-refused: the instance does not exist, is being deleted or belongs to another machine. The
// adoption is retried, and the machine does not fail.
func TestUnsuitableInstanceIsNotAdopted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil   func(w *world, id string)
		message string
	}{
		"missing": {func(w *world, id string) { w.cloud.Vanish(id) }, "has no instance"},
		"being deleted": {func(w *world, id string) { w.cloud.SetState(id, provider.StateTerminating, "") },
			"is Terminating"},
		"failed": {func(w *world, id string) { w.cloud.SetState(id, provider.StateFailed, "") }, "is Failed"},
		"of another machine": {func(w *world, id string) {
			w.cloud.Change(id, func(in *provider.Instance) { fakecloud.Tag(in, tags("cluster", "another")) })
		}, `machine "another"`},
		"of another cluster": {func(w *world, id string) {
			w.cloud.Change(id, func(in *provider.Instance) { fakecloud.Tag(in, tags("elsewhere", "")) })
		}, `cluster "elsewhere"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			id := w.adoptable()
			c.spoil(w, id)
			w.createMachine("m", withProviderID(id))
			w.reconcile("m")
			m := w.get("m")
			w.wantPhase(m, v1beta1.MachinePending)
			refused := w.wantCondition(m, v1beta1.ConditionLaunched, metav1.ConditionFalse, v1beta1.ReasonAdoptionRefused)
			if !strings.Contains(refused.Message, c.message) {
				t.Errorf("the message is %q, want %q in it", refused.Message, c.message)
			}
			w.step(time.Hour)
			var last time.Duration
			for range 12 {
				last = w.wantQuiet("m").RequeueAfter
				w.step(last)
			}
			if last < 10*time.Minute || last > 13*time.Minute {
				t.Errorf("checks again after %s", last)
			}
			if calls := slices.DeleteFunc(w.effects.calls(), func(c string) bool { return c == "cloud get" }); len(calls) > 0 {
				t.Errorf("calls to the cloud: %q", calls)
			}
			w.createUntagged(id, "n")
			w.reconcile("m")
			w.wantCondition(w.get("m"), v1beta1.ConditionLaunched, metav1.ConditionTrue, v1beta1.ReasonInstanceAdopted)
		})
	}
}

// Rule unsuitable-instance-refused: an ID with another spelling would never equal the provider ID of the Node.
func TestProviderIDWithAnotherSpellingIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.adoptable()
	w.cloud.Script("Get", fakecloud.Step{EditAnswer: func(in *provider.Instance) { in.ProviderID = strings.ToUpper(id) }})
	w.createMachine("m", withProviderID(id))
	w.reconcile("m")
	c := w.wantCondition(w.get("m"), v1beta1.ConditionLaunched, metav1.ConditionFalse, v1beta1.ReasonAdoptionRefused)
	if !strings.Contains(c.Message, strings.ToUpper(id)) {
		t.Errorf("the message is %q", c.Message)
	}
}

// Rules driver-refuses-adoption, adoption-by-provider-id: after an error of the cloud, the adoption is retried, and the
// machine does not fail. If the driver cannot adopt instances, this is reported.
func TestErrorsOfAdoption(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.adoptable()
	unreachable := provider.Errorf(provider.Unavailable, "busy")
	w.cloud.Fail("Get", unreachable, provider.Errorf(provider.InvalidArgument, "%q is no ID of this cloud", id))
	w.cloud.Fail("Adopt", unreachable, provider.Errorf(provider.FailedPrecondition, "locked"),
		provider.Errorf(provider.Unimplemented, "cannot"))
	w.createMachine("m", withProviderID(id))
	for i, want := range []string{
		v1beta1.ReasonProviderUnavailable, v1beta1.ReasonAdoptionRefused, v1beta1.ReasonProviderUnavailable,
		v1beta1.ReasonAdoptionRefused, v1beta1.ReasonAdoptionUnsupported,
	} {
		w.step(time.Hour)
		result := w.reconcile("m")
		m := w.get("m")
		w.wantCondition(m, v1beta1.ConditionLaunched, metav1.ConditionFalse, want)
		if m.Status.FailureReason != "" || (result.RequeueAfter == 0) != (i == 4) {
			t.Errorf("after %s: failure %q, checks again after %s", want, m.Status.FailureReason, result.RequeueAfter)
		}
	}
}

// Rule older-machine-keeps-instance: when the older machine is deleted without its instance, the younger machine adopts
// the instance.
func TestYoungerMachineWithTheSameProviderIDWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.adoptable()
	w.allow("small", v1beta1.AdoptionForbid)
	w.createMachine("a", withProviderID(id))
	w.createMachine("b", withProviderID(id))
	first, younger := "a", "b"
	if older(w.get("b"), w.get("a")) {
		first, younger = "b", "a" // If both were created in the same second, the UID decides.
	}
	w.reconcile(first)
	w.allow("small", v1beta1.AdoptionAllow)
	w.reconcile(younger)
	c := w.wantCondition(w.get(younger), v1beta1.ConditionLaunched, metav1.ConditionFalse,
		v1beta1.ReasonDuplicateProviderID)
	if !strings.Contains(c.Message, w.namespace+"/"+first) {
		t.Errorf("the message is %q", c.Message)
	}
	w.wantUntouched(id)
	w.delete(first)
	w.untilGone(first)
	w.wantUntouched(id)
	w.reconcile(younger)
	w.wantCondition(w.get(younger), v1beta1.ConditionLaunched, metav1.ConditionTrue, v1beta1.ReasonInstanceAdopted)
}

// Rule: older-machine-keeps-instance.
func TestDeletionOfAMachineTriggersTheYoungerOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.adoptable()
	gone, waits := w.createMachine("a", withProviderID(id)), w.createMachine("b", withProviderID(id))
	w.delete("a")
	found := machinesOfInstance(w.options.Client)(t.Context(), gone)
	if len(found) != 1 || found[0].Name != waits.Name {
		t.Errorf("triggers %v", found)
	}
}

// Rule older-machine-keeps-instance: while one worker adopts an instance, another worker does not even read this
// instance.
func TestTwoWorkersDoNotAdoptOneInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.adoptable()
	m := w.createMachine("m", withProviderID(id))
	other := m.DeepCopy()
	other.UID = "another"
	w.process.states.beginAdoption(other)
	if result := w.reconcile("m"); result.RequeueAfter != time.Second {
		t.Errorf("checks again after %s", result.RequeueAfter)
	}
	if calls := w.effects.calls(); len(calls) > 0 {
		t.Errorf("calls to the cloud: %q", calls)
	}
	w.process.states.endAdoption(other)
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionLaunched, metav1.ConditionTrue, v1beta1.ReasonInstanceAdopted)
	if n := len(w.process.states.adoptingMachines); n != 0 {
		t.Errorf("%d adoptions are recorded as under way", n)
	}
}

// Rule untagged-instance-left-alone: even a force-deletion does not change the instance or its Node.
func TestDeletionKeepsAnInstanceThatWasNeverAdopted(t *testing.T) {
	t.Parallel()
	for name, annotation := range map[string]string{"without force": "", "by force": v1beta1.AnnotationForceDelete} {
		for _, checked := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				id := w.adoptable()
				w.allow("small", v1beta1.AdoptionForbid)
				w.nodeOfAnother(id)
				w.createMachine("m", withProviderID(id), func(m *v1beta1.Machine) { m.Finalizers = []string{v1beta1.MachineFinalizer} })
				if annotation != "" {
					w.annotate("m", annotation)
				}
				if checked {
					w.reconcile("m")
				}
				w.delete("m")
				w.untilGone("m")
				w.wantUntouched(id)
				if n := len(w.effects.calls()); n > 0 {
					t.Errorf("%d calls to the cloud for an instance that was never tagged", n)
				}
			})
		}
	}
}

// Rule untagged-instance-left-alone: the answer to the tagging call was lost. The deletion waits until the cloud would
// have shown the tags. An instance with the tags is deleted.
func TestDeletionWaitsForTagsThatMayShowLate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		late  time.Duration
		stays bool
	}{"the tags show": {40 * time.Second, false}, "the tags do not show": {0, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			id := w.adoptable()
			w.nodeOfAnother(id)
			w.createMachine("m", withProviderID(id))
			w.cloud.Script("Adopt", fakecloud.Step{Err: provider.Errorf(provider.DeadlineExceeded, "no answer"), EffectDelay: c.late})
			w.reconcile("m")
			if m := w.get("m"); !m.IsAdopting() {
				t.Fatalf("the status does not record that tags were requested: %+v", m.Status.Launch)
			}
			w.restart()
			began := w.clock.Now()
			w.delete("m")
			w.untilGone("m")
			if waited := w.clock.Since(began); waited < w.cloud.Settle {
				t.Errorf("the machine was gone after %s", waited)
			}
			if in := w.instance(id); (in != nil) != c.stays {
				t.Errorf("the instance is %+v", in)
			}
			if node := w.getNode(nodeNameOf(w.namespace, "legacy")); (node != nil) != c.stays {
				t.Errorf("the node is %+v", node)
			}
		})
	}
}

// Rule untagged-instance-left-alone: the result does not depend on where the adoption and the deletion are
// interrupted. An instance without the tags is never deleted.
func TestInterruptedAdoptionContinues(t *testing.T) {
	t.Parallel()
	for _, mode := range []effectCut{{losesAnswer: true, dies: true}, {losesAnswer: true}, {losesAnswer: false}} {
		for _, deletedEarly := range []bool{false, true} {
			t.Run(mode.String(), func(t *testing.T) {
				t.Parallel()
				for at := 1; ; at++ {
					w := newWorld(t)
					id := w.adoptable()
					w.nodeOfAnother(id)
					w.createMachine("m", withProviderID(id))
					w.effects.next = effectCut{effectNumber: at, losesAnswer: mode.losesAnswer, dies: mode.dies}
					if deletedEarly {
						_, _ = w.pass("m")
						if w.effects.revive() {
							w.restart()
						}
					} else {
						m := w.untilPhase("m", v1beta1.MachineRunning)
						w.wantCondition(m, v1beta1.ConditionLaunched, metav1.ConditionTrue, v1beta1.ReasonInstanceAdopted)
					}
					tagged := w.instance(id).MachineUID != ""
					w.delete("m")
					w.untilGone("m")
					if in := w.instance(id); (in == nil) != tagged {
						t.Fatalf("cut at effect %d (%s): tagged %t, and the instance is %+v", at, w.effects.struck, tagged, in)
					}
					if w.effects.struck == "" {
						return
					}
				}
			})
		}
	}
}

// Rule unsuitable-instance-refused: a user sets a provider ID during the launch. The machine gets no second instance,
// and no instance is lost.
func TestAMachineThatIsBeingLaunchedAdoptsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.adoptable()
	w.createMachine("m")
	w.cloud.Script("Create", fakecloud.Step{Err: provider.Errorf(provider.DeadlineExceeded, "no answer"), EffectDelay: 10 * time.Second})
	w.reconcile("m")
	w.update("m", func(m *v1beta1.Machine) { m.Spec.ProviderID = id })
	for range 5 {
		w.step(w.reconcile("m").RequeueAfter)
	}
	if in := w.instance(id); in.MachineUID != "" {
		t.Fatalf("the machine has two instances: %+v", w.cloud.LiveInstances())
	}
	w.delete("m")
	w.untilGone("m")
	if left := w.cloud.LiveInstances(); len(left) != 1 || left[0].ProviderID != id {
		t.Errorf("these instances remain: %+v", left)
	}
}

func tags(cluster, uid string) map[string]string {
	return map[string]string{provider.TagCluster: cluster, provider.TagMachineUID: uid}
}

// Rule: adopted-counts-as-declared.
func TestAdoptedInstanceIsRecordedForItsDeletion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.adoptable()
	w.createMachine("m", withProviderID(id))
	w.reconcile("m")
	m := w.get("m")
	if i := m.Status.Instance; i == nil || i.Provider != fakeProvider || i.CredentialsRef == nil ||
		i.CredentialsRef.Name != "small-credentials" {
		t.Errorf("the status is %+v", m.Status.Instance)
	}
	if in := w.instance(id); in.OwnedBy("cluster", identity(m)) != nil {
		t.Errorf("the tags are %+v", in.Instance)
	}
}
