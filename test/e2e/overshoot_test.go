//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/test/env"
)

// frozenFor is how long a freeze lasts at least in this test: long enough to check it.
const frozenFor = 20 * time.Second

// Somebody makes machines in the name of a set faster than it can delete them. It is frozen with its deployment, for
// all to see: there are none made, too many are deleted as ever, and when they are gone it goes on by itself. A
// person may end it sooner.
//
// Rules: freeze-is-reported, overshoot-freezes-owner, overshoot-counts-family, freeze-ends-with-recovery,
// unfreeze-annotation, frozen-set-only-deletes.
func TestAFloodOfMachinesFreezesTheirOwners(t *testing.T) {
	t.Parallel()
	metrics := freeAddress(t)
	m := start(t, stack.Options{NoTarget: true, ManagerArgs: []string{
		"--overshoot-tolerance=1", "--overshoot-recovery=1", "--overshoot-check-period=" + frozenFor.String(),
		"--metrics-bind-address=" + metrics, "--metrics-secure=false",
	}})
	m.quick()
	m.fleet(2, plainUserData)
	before := m.available(2)
	solo := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "solo"}}
	solo.Spec.Replicas = new(int32(1))
	solo.Spec.Selector.MatchLabels = map[string]string{"pool": "solo"}
	solo.Spec.Template.ObjectMeta.Labels = map[string]string{"pool": "solo"}
	solo.Spec.Template.Spec = m.deployment().Spec.Template.Spec
	m.create(solo)
	m.available(3)
	m.showsOvershoots(metrics, 0)

	t.Log("machines of the deployment's set come from elsewhere")
	owners := []client.Object{m.deployment(), m.ownerOf(&before[0])}
	stop := m.flood(owners[1].(*v1beta1.MachineSet))
	for _, o := range owners {
		m.awaitOvershoot(o, true)
	}
	began := time.Now()
	stop()
	m.showsOvershoots(metrics, 1)
	m.reportedOf(owners...)
	after := m.available(3)
	if gone := without(uids(before), uids(after)); len(gone) > 0 {
		t.Errorf("of too many machines those of the set itself were deleted: %s", gone)
	}
	t.Logf("the other machines are gone after %s; more are wanted meanwhile", time.Since(began).Round(time.Millisecond))
	m.scale(3)
	made := func() (n int, frozen bool) {
		// A freeze that is there after the machines were counted was there before.
		n = len(m.machines())
		return n, m.deployment().Labels[v1beta1.LabelFreeze] == v1beta1.ReasonOvershoot
	}
	checks := 0
	eventually(t, "the deployment thaws", func() (bool, string) {
		n, frozen := made()
		if frozen && n != 3 {
			t.Fatalf("there are %d machines during the freeze", n)
		}
		checks++
		return !frozen, fmt.Sprintf("%d machines", n)
	})
	if checks < 10 {
		t.Fatalf("it was checked %d times during the freeze", checks)
	}
	m.available(4)
	for _, o := range owners {
		m.awaitOvershoot(o, false)
	}
	m.showsOvershoots(metrics, 0)

	t.Log("machines of a set without a deployment come from elsewhere, and a person ends the freeze")
	stop = m.flood(solo)
	m.awaitOvershoot(solo, true)
	began = time.Now()
	stop()
	set := &v1beta1.MachineSet{}
	if err := m.control.Get(context.Background(), client.ObjectKeyFromObject(solo), set); err != nil {
		t.Fatal(err)
	}
	was := set.DeepCopy()
	set.Annotations = map[string]string{v1beta1.AnnotationUnfreeze: ""}
	if err := m.control.Patch(context.Background(), set, client.MergeFrom(was)); err != nil {
		t.Fatal(err)
	}
	m.awaitOvershoot(solo, false)
	if took := time.Since(began); took >= frozenFor-2*time.Second {
		t.Errorf("the freeze ended after %s, as by itself", took)
	}
	m.available(4)
	m.noTwins()
}

// flood makes machines in the name of a set, of a provider that there is not, until the returned function is called. No
// request is broken off then: the API server may still carry out one whose client is gone.
func (m *machinist) flood(set *v1beta1.MachineSet) (stop func()) {
	var enough atomic.Bool
	var makers sync.WaitGroup
	for range 8 {
		makers.Go(func() {
			for !enough.Load() {
				others := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "others-",
					Labels: map[string]string{}}}
				for key, value := range set.Spec.Selector.MatchLabels {
					others.Labels[key] = value
				}
				others.Labels[v1beta1.LabelProvider] = "elsewhere"
				others.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set,
					v1beta1.GroupVersion.WithKind("MachineSet"))}
				others.Spec = *set.Spec.Template.Spec.DeepCopy()
				if err := m.control.Create(context.Background(), others); err != nil {
					m.t.Errorf("make another machine: %v", err)
					return
				}
			}
		})
	}
	stop = sync.OnceFunc(func() { enough.Store(true); makers.Wait() })
	m.t.Cleanup(stop)
	return stop
}

func (m *machinist) ownerOf(machine *v1beta1.Machine) *v1beta1.MachineSet {
	m.t.Helper()
	set := &v1beta1.MachineSet{}
	key := client.ObjectKey{Namespace: namespace, Name: metav1.GetControllerOf(machine).Name}
	if err := m.control.Get(context.Background(), key, set); err != nil {
		m.t.Fatal(err)
	}
	return set
}

// awaitOvershoot waits until label and condition of an owner say that it is frozen for too many machines, or neither
// does and the condition says that it was.
func (m *machinist) awaitOvershoot(owner client.Object, frozen bool) {
	m.t.Helper()
	is := func(o client.Object, conditions []metav1.Condition) (bool, string) {
		label := o.GetLabels()[v1beta1.LabelFreeze]
		c := meta.FindStatusCondition(conditions, v1beta1.ConditionFrozen)
		state := fmt.Sprintf("label %q, condition %v", label, c)
		if frozen {
			return label == v1beta1.ReasonOvershoot && c != nil && c.Status == metav1.ConditionTrue &&
				c.Reason == v1beta1.ReasonOvershoot, state
		}
		return label == "" && c != nil && c.Status == metav1.ConditionFalse, state
	}
	what := fmt.Sprintf("%T %s frozen=%t", owner, owner.GetName(), frozen)
	if _, deployment := owner.(*v1beta1.MachineDeployment); deployment {
		env.Await(m.t, m.control, &v1beta1.MachineDeploymentList{}, what,
			func(l *v1beta1.MachineDeploymentList) (bool, string) {
				at := slices.IndexFunc(l.Items, func(d v1beta1.MachineDeployment) bool { return d.Name == owner.GetName() })
				return is(&l.Items[at], l.Items[at].Status.Conditions)
			}, client.InNamespace(namespace))
		return
	}
	env.Await(m.t, m.control, &v1beta1.MachineSetList{}, what, func(l *v1beta1.MachineSetList) (bool, string) {
		at := slices.IndexFunc(l.Items, func(s v1beta1.MachineSet) bool { return s.Name == owner.GetName() })
		return is(&l.Items[at], l.Items[at].Status.Conditions)
	}, client.InNamespace(namespace))
}

// reportedOf waits until there is a warning about the freeze of each of the owners.
func (m *machinist) reportedOf(owners ...client.Object) {
	m.t.Helper()
	env.Await(m.t, m.control, &corev1.EventList{}, "an event for each owner", func(l *corev1.EventList) (bool, string) {
		reported := map[types.UID]bool{}
		for _, e := range l.Items {
			if e.Reason == v1beta1.ReasonOvershoot && e.Type == "Warning" {
				reported[e.InvolvedObject.UID] = true
			}
		}
		for _, o := range owners {
			if !reported[o.GetUID()] {
				return false, "none about " + o.GetName()
			}
		}
		return true, ""
	}, client.InNamespace(namespace))
}

// showsOvershoots waits until the metric counts so many frozen owners.
func (m *machinist) showsOvershoots(address string, want int) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("the metric counts %d", want), func() (bool, string) {
		code, body := get(m.t, "http://"+address+"/metrics", "")
		lines := slices.DeleteFunc(strings.Split(body, "\n"), func(l string) bool {
			return !strings.HasPrefix(l, "machinist_frozen{")
		})
		return code == http.StatusOK && slices.Contains(lines, fmt.Sprintf(`machinist_frozen{reason="Overshoot"} %d`, want)),
			strings.Join(lines, "; ")
	})
}
