package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
	"machinist.dev/machinist/internal/fleet/machineset"
	"machinist.dev/machinist/internal/health/overshoot"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/test/env"
)

func overshot(o client.Object, conditions []metav1.Condition) bool {
	c := meta.FindStatusCondition(conditions, v1beta1.ConditionFrozen)
	return o.GetLabels()[v1beta1.LabelFreeze] == v1beta1.ReasonOvershoot &&
		c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1beta1.ReasonOvershoot
}

func thawed(o client.Object, conditions []metav1.Condition) bool {
	_, labelled := o.GetLabels()[v1beta1.LabelFreeze]
	c := meta.FindStatusCondition(conditions, v1beta1.ConditionFrozen)
	return !labelled && c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1beta1.ReasonThawed
}

func (b *bench) awaitOwners(is func(client.Object, []metav1.Condition) bool) {
	b.Helper()
	env.Await(b, b.admin, &v1beta1.MachineDeploymentList{}, "the deployment",
		func(l *v1beta1.MachineDeploymentList) (bool, string) {
			d := &l.Items[0]
			return is(d, d.Status.Conditions), fmt.Sprintf("%v %+v", d.Labels, d.Status.Conditions)
		}, client.InNamespace(b.namespace))
	env.Await(b, b.admin, &v1beta1.MachineSetList{}, "the set", func(l *v1beta1.MachineSetList) (bool, string) {
		set := &l.Items[0]
		return is(set, set.Status.Conditions), fmt.Sprintf("%v %+v", set.Labels, set.Status.Conditions)
	}, client.InNamespace(b.namespace))
}

func (b *bench) awaitLive(want int) {
	b.Helper()
	env.Await(b, b.admin, &v1beta1.MachineList{}, "the machines", func(l *v1beta1.MachineList) (bool, string) {
		live := 0
		for _, m := range l.Items {
			if m.DeletionTimestamp == nil {
				live++
			}
		}
		return live == want, fmt.Sprintf("%d live machines", live)
	}, client.InNamespace(b.namespace))
}

// flood creates machines for a set faster than they are deleted, until stop is called.
func (b *bench) flood(set *v1beta1.MachineSet) (stop func()) {
	ctx, cancel := context.WithCancel(b.ctx())
	var creators sync.WaitGroup
	for range 8 {
		creators.Go(func() {
			for ctx.Err() == nil {
				m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, GenerateName: "other-",
					Labels: set.Spec.Selector.MatchLabels}}
				m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set,
					v1beta1.GroupVersion.WithKind("MachineSet"))}
				m.Spec = *set.Spec.Template.Spec.DeepCopy()
				if err := b.admin.Create(ctx, m); err != nil && ctx.Err() == nil {
					b.Errorf("create another machine: %v", err)
					return
				}
			}
		})
	}
	return sync.OnceFunc(func() { cancel(); creators.Wait() })
}

// Another program keeps creating machines for a set, so the set is frozen. When the program stops, the freeze ends.
//
// Rules: overshoot-freezes-owner, freeze-ends-with-recovery.
func TestOwnersAreFrozenWhileMachinesAreFlooded(t *testing.T) {
	b := newBench(t)
	env.Manager(t, func(ctx context.Context, mgr manager.Manager) error {
		if err := errors.Join(index.RegisterMachines(ctx, mgr.GetFieldIndexer()),
			index.RegisterSets(ctx, mgr.GetFieldIndexer())); err != nil {
			return err
		}
		quiet := events.NewFakeRecorder(100000)
		sets := machineset.New(machineset.Options{Client: mgr.GetClient(), LiveReader: mgr.GetAPIReader(), Recorder: quiet,
			Clock: clock.RealClock{}})
		deployments := machinedeployment.New(machinedeployment.Options{Client: mgr.GetClient(),
			LiveReader: mgr.GetAPIReader(),
			Recorder:   quiet, Clock: clock.RealClock{}})
		freezer := overshoot.New(overshoot.Options{
			Client: mgr.GetClient(), LiveReader: mgr.GetAPIReader(), Recorder: quiet, Clock: clock.RealClock{},
			Limits: overshoot.Limits{Tolerance: 1, Hysteresis: 1, Period: time.Second},
		})
		return errors.Join(sets.Register(mgr), deployments.Register(mgr), freezer.Wiring().Add(mgr, nil))
	})
	d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "web"}}
	d.Spec.Replicas = new(int32(2))
	d.Spec.Selector.MatchLabels = map[string]string{"pool": "workers"}
	d.Spec.Template = template()
	b.must(b.admin.Create(b.ctx(), d))
	b.awaitLive(2)

	stop := b.flood(&b.allSets()[0])
	defer stop()
	b.awaitOwners(overshot)
	stop()
	b.awaitOwners(thawed)
	b.awaitLive(2)
	b.change(d, func() { d.Spec.Replicas = new(int32(4)) })
	b.awaitLive(4)
}
