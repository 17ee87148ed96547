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

// frozenFor is the minimum duration of a freeze, long enough for the checks of the test.
const frozenFor = 20 * time.Second

// Another client creates machines of a set faster than the set can delete them. The set and its deployment must
// freeze and report the freeze. Frozen owners create no machines but delete surplus machines. The freeze ends when no
// surplus is left, or when an administrator ends it.
//
// Rules: freeze-is-reported, overshoot-freezes-owner, overshoot-counts-family, freeze-ends-with-recovery,
// unfreeze-annotation, frozen-set-only-deletes.
func TestOvershootFreezesOwners(t *testing.T) {
	t.Parallel()
	metrics := freeAddress(t)
	m := start(t, stack.Options{NoTarget: true, ManagerArgs: []string{
		"--overshoot-tolerance=1", "--overshoot-recovery=1", "--overshoot-check-period=" + frozenFor.String(),
		"--metrics-bind-address=" + metrics, "--metrics-secure=false",
	}})
	m.removeDelays()
	m.createFleet(2, plainUserData)
	before := m.awaitAvailable(2)
	solo := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "solo"}}
	solo.Spec.Replicas = new(int32(1))
	solo.Spec.Selector.MatchLabels = map[string]string{"pool": "solo"}
	solo.Spec.Template.ObjectMeta.Labels = map[string]string{"pool": "solo"}
	solo.Spec.Template.Spec = m.deployment().Spec.Template.Spec
	m.create(solo)
	m.awaitAvailable(3)
	m.awaitOvershootMetric(metrics, 0)

	t.Log("another client creates machines of the deployment's set")
	owners := []client.Object{m.deployment(), m.ownerOf(&before[0])}
	stop := m.flood(owners[1].(*v1beta1.MachineSet))
	for _, o := range owners {
		m.awaitOvershoot(o, true)
	}
	began := time.Now()
	stop()
	m.awaitOvershootMetric(metrics, 1)
	m.awaitOvershootEvents(owners...)
	after := m.awaitAvailable(3)
	if gone := missing(uids(before), uids(after)); len(gone) > 0 {
		t.Errorf("machines that the set itself created were deleted: %s", gone)
	}
	t.Logf("the surplus machines are gone after %s; scale up during the freeze", time.Since(began).Round(time.Millisecond))
	m.scale(3)
	observe := func() (n int, frozen bool) {
		// Count the machines before reading the label: a deployment that is frozen after the count was also frozen
		// during the count.
		n = len(m.machines())
		return n, m.deployment().Labels[v1beta1.LabelFreeze] == v1beta1.ReasonOvershoot
	}
	checks := 0
	eventually(t, "the freeze of the deployment ends", func() (bool, string) {
		n, frozen := observe()
		if frozen && n != 3 {
			t.Fatalf("got %d machines during the freeze, want 3", n)
		}
		checks++
		return !frozen, fmt.Sprintf("%d machines", n)
	})
	if checks < 10 {
		t.Fatalf("got %d checks during the freeze, want at least 10", checks)
	}
	m.awaitAvailable(4)
	for _, o := range owners {
		m.awaitOvershoot(o, false)
	}
	m.awaitOvershootMetric(metrics, 0)

	t.Log("another client creates machines of a standalone set, and an administrator ends the freeze")
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
		t.Errorf("the freeze ended after %s, want less than %s", took, frozenFor-2*time.Second)
	}
	m.awaitAvailable(4)
	m.wantNoTwins()
}

// flood creates machines of a set until the returned function is called. No process handles these machines, because
// their provider does not exist. Do not cancel these requests, because the API server may still execute a canceled
// request.
func (m *machinist) flood(set *v1beta1.MachineSet) (stop func()) {
	var stopped atomic.Bool
	var creators sync.WaitGroup
	for range 8 {
		creators.Go(func() {
			for !stopped.Load() {
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
					m.t.Errorf("create another machine: %v", err)
					return
				}
			}
		})
	}
	stop = sync.OnceFunc(func() { stopped.Store(true); creators.Wait() })
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

// awaitOvershoot waits until the label and the condition of an owner report that the owner is frozen because of an
// overshoot. If frozen is false, awaitOvershoot waits until the label and the condition report that the owner is not
// frozen.
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

func (m *machinist) awaitOvershootEvents(owners ...client.Object) {
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
				return false, "no event about " + o.GetName()
			}
		}
		return true, ""
	}, client.InNamespace(namespace))
}

func (m *machinist) awaitOvershootMetric(address string, want int) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("the metric machinist_frozen is %d", want), func() (bool, string) {
		code, body := get(m.t, "http://"+address+"/metrics", "")
		lines := slices.DeleteFunc(strings.Split(body, "\n"), func(l string) bool {
			return !strings.HasPrefix(l, "machinist_frozen{")
		})
		return code == http.StatusOK && slices.Contains(lines, fmt.Sprintf(`machinist_frozen{reason="Overshoot"} %d`, want)),
			strings.Join(lines, "; ")
	})
}
