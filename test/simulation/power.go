package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/invariants"
)

// Power is the group of scenarios in which machines are stopped and started.
const Power Group = "power"

// stopTakes and startTakes are the durations of a shutdown and of a start.
const (
	stopTakes  = 20 * time.Second
	startTakes = 10 * time.Second
)

// power is the power state of an instance, in addition to its State.
type power struct {
	// boots counts the starts of the instance after its creation.
	boots int
	// switchAt is when the State becomes switchTo, or zero.
	switchAt time.Time
	switchTo provider.InstanceState
	// node is the UID of the Node of the instance when it was first asked to shut down.
	node types.UID
}

func (in *instance) bootID() string { return fmt.Sprintf("%s/%d", in.ProviderID, in.boots) }

func (in *instance) switchPower(now time.Time, heals bool) {
	if in.switchAt.IsZero() || now.Before(in.switchAt) || !in.dying.IsZero() {
		return
	}
	if in.State = in.switchTo; in.State == provider.StateRunning {
		in.boots++
		in.hung = in.hung && !heals
	}
	in.switchAt = time.Time{}
}

// SetPower implements provider.Power.
func (d driver) SetPower(_ context.Context, req provider.PowerRequest) (out *provider.Instance, err error) {
	err = d.do("set power "+string(req.Action)+" of", req.Machine, false, func(late bool) error {
		in, err := d.find(req.ProviderID, "", req.Scope, req.ClusterID, req.Machine.UID)
		if err != nil {
			return err
		}
		if err := in.OwnedBy(req.ClusterID, req.Machine); err != nil {
			return err
		}
		if req.Action == provider.PowerOn {
			d.process.world.oracle.mayReboot(in, req.Machine.UID)
		} else {
			d.process.world.oracle.mayStop(in, req.Machine.UID, req.Action)
		}
		if node := d.process.world.node(in.NodeName); in.node == "" && node != nil {
			in.node = node.UID
		}
		if err := d.requestPower(in, req.Action, late); err != nil {
			w := d.process.world
			w.disturbed, w.stepsAtFault = w.clock.at, w.steps // The next attempt may be minutes away.
			return err
		}
		out = in.describe()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (c *Cloud) requestPower(in *instance, action provider.PowerAction, late bool) error {
	wanted, takes := provider.StateStopped, stopTakes
	switch action {
	case provider.PowerOn:
		wanted, takes = provider.StateRunning, startTakes
	case provider.PowerForceOff:
		takes = 0
	}
	if late {
		takes += c.Settle / 2
	}
	settled := in.switchAt.IsZero()
	switch {
	case !in.dying.IsZero() || in.State != provider.StateRunning && in.State != provider.StateStopped,
		settled && in.State == wanted, !settled && in.switchTo == wanted && action != provider.PowerForceOff,
		action == provider.PowerOff && c.ignoresShutdown:
		return nil
	case action == provider.PowerOn && c.now().Before(c.noCapacityUntil):
		return provider.Errorf(provider.ResourceExhausted, "no host has capacity for instance %s", in.ProviderID)
	}
	in.switchAt, in.switchTo = c.now().Add(takes), wanted
	in.switchPower(c.now(), c.rebootHeals)
	return nil
}

// withPower returns the controllers of a scenario. Only two scenarios have the check for orphans, because its reads are
// more than nine in ten effects of a run, so that most faults of a sample would not affect the power.
func withPower(scenario string) Controllers {
	if slices.Contains([]string{"power-stop", "hibernate"}, scenario) {
		return Health | Orphans
	}
	return Health
}

func powerScenarios() []Scenario {
	web := []app{{name: "web", kind: ReplicaSet, replicas: 2, minAvailable: 1, grace: 20, slow: true}}
	two := fleet(2, "a", drained)
	scenario := func(name string, variants int, apps []app, script func(*rand.Rand) []Action) Scenario {
		return Scenario{Name: name, Group: Power, Controllers: withPower(name), Variants: variants, Base: two, Apps: apps,
			Script: script, MayDiffer: anyEnd} // After a breakage, a machine that was stopped may be replaced.
	}
	return []Scenario{
		scenario("power-stop", 2, web, func(*rand.Rand) []Action {
			return append(append([]Action{leavesStoppedMachines(), setPowerState(v1beta1.PowerStopped)}, lasting(3)...),
				setPowerState(v1beta1.PowerRunning).waitFor("the machine is stopped", isStopped))
		}),
		scenario("power-start", 2, web, func(r *rand.Rand) []Action {
			return []Action{leavesStoppedMachines(), setPowerState(v1beta1.PowerStopped),
				setPowerState(v1beta1.PowerRunning).waitFor("the machine is stopped", isStopped).after(upTo(r, 10*time.Minute))}
		}),
		scenario("power-start-early", 4, nil, func(r *rand.Rand) []Action {
			return []Action{leavesStoppedMachines(), setPowerState(v1beta1.PowerStopped),
				setPowerState(v1beta1.PowerRunning).after(upTo(r, time.Minute))}
		}),
		scenario("power-shutdown-ignored", 1, nil, func(*rand.Rand) []Action {
			return []Action{leavesStoppedMachines(),
				changeWorld("shutdowns are ignored", func(w *World) { w.cloud.ignoresShutdown = true }),
				setPowerState(v1beta1.PowerStopped),
				setPowerState(v1beta1.PowerRunning).waitFor("the machine is stopped", isStopped)}
		}),
		scenario("power-no-capacity", 1, nil, func(*rand.Rand) []Action {
			return []Action{leavesStoppedMachines(), setPowerState(v1beta1.PowerStopped),
				changeWorld("the cloud has no capacity for 15 minutes", func(w *World) {
					w.cloud.noCapacityUntil = w.clock.at.Add(15 * time.Minute)
				}).waitFor("the machine is stopped", isStopped), setPowerState(v1beta1.PowerRunning), wait(20 * time.Minute)}
		}),
		scenario("power-delete-stopped", 1, web, func(*rand.Rand) []Action {
			return []Action{setPowerState(v1beta1.PowerStopped),
				deleteMachine(0).waitFor("the machine is stopped", isStopped)}
		}),
		scenario("hibernate", 3, web, func(r *rand.Rand) []Action {
			actions := []Action{leavesStoppedMachines(), setHibernated(true)}
			if r.IntN(2) == 0 {
				actions = append(actions, setHibernated(false).after(upTo(r, 2*time.Minute)), setHibernated(true))
			}
			actions = append(actions, wait(0).waitFor("all machines are stopped", allStopped))
			return append(append(actions, lasting(1)...), setHibernated(false))
		}),
		scenario("hibernate-scaled", 2, nil, func(r *rand.Rand) []Action {
			n := []int32{1, 3}[r.IntN(2)]
			return []Action{setHibernated(true), scale(n).waitFor("all machines are stopped", allStopped),
				roll("b"), setHibernated(false).after(10 * time.Minute)}
		}),
	}
}

func setHibernated(hibernated bool) Action {
	return edit(fmt.Sprintf("hibernated %t", hibernated), func(d *v1beta1.MachineDeployment) { d.Spec.Hibernated = hibernated })
}

// setPowerState sets the power state of the first machine.
func setPowerState(state v1beta1.PowerState) Action {
	return Action{Name: fmt.Sprintf("power state %s", state), Do: func(ctx context.Context, w *World, c client.Client) error {
		machines := w.machines()
		if len(machines) == 0 {
			return nil
		}
		changed := machines[0].DeepCopy()
		changed.Spec.PowerState = state
		w.logf("the machine is %s", changed.Name)
		return client.IgnoreNotFound(c.Patch(ctx, changed, client.MergeFrom(machines[0])))
	}}
}

// isStopped reports whether each machine with the power state Stopped reports that it is stopped. This is also true if
// the machine that a user stopped no longer exists.
func isStopped(w *World) bool {
	return !slices.ContainsFunc(w.machines(), func(m *v1beta1.Machine) bool {
		return m.Spec.PowerState == v1beta1.PowerStopped && w.cloud.byID(m.Spec.ProviderID) != nil && !reportsStopped(m)
	})
}

// allStopped reports whether all machines with an instance report that they are stopped.
func allStopped(w *World) bool {
	return !slices.ContainsFunc(w.machines(), func(m *v1beta1.Machine) bool {
		return w.cloud.byID(m.Spec.ProviderID) != nil && !reportsStopped(m)
	})
}

func reportsStopped(m *v1beta1.Machine) bool {
	c := findCondition(m, v1beta1.ConditionPowerStateReached)
	return m.Spec.PowerState == v1beta1.PowerStopped && c != nil && c.Reason == v1beta1.ReasonStopped &&
		c.Status == metav1.ConditionTrue
}

// mayStop checks that an instance may be stopped now: the Node is drained, and the rules of stops are met.
func (o *oracle) mayStop(in *instance, id uid, action provider.PowerAction) {
	o.mayDisturb(in, id, true)
	m := o.machines[id]
	if m == nil || in.owner() != id {
		return
	}
	o.judged["power"]++
	o.mayRebootForCheck(m)
	if wrong := invariants.WrongStop(o.allVersions(id), o.believedVersions(id)); wrong != "" {
		o.breach("power", "instance %s of machine %s is stopped, but %s: %+v", in.ProviderID, m.Name, wrong, m.Status.Power)
	}
	if action == provider.PowerOff {
		return
	}
	node := o.world.node(in.NodeName)
	isSilent := node == nil || readiness(node) != corev1.ConditionTrue
	if wrong := invariants.WrongForcedStop(o.believedVersions(id), o.world.clock.at, isSilent); wrong != "" {
		o.breach("power", "instance %s of machine %s is stopped without its operating system, but %s", in.ProviderID, m.Name,
			wrong)
	}
}

func (o *oracle) allVersions(id uid) (all []*v1beta1.Machine) {
	for _, v := range o.history[id] {
		all = append(all, v.machine)
	}
	return all
}

// leavesStoppedMachines checks after each write that stopping and starting replaces no machine and no Node, and that a
// machine reports its state only when this is true in the cloud. After a breakage, machines may be replaced.
func leavesStoppedMachines() Action {
	const machines = 2 // in the fleet of these scenarios
	return addStatement("stopped machines are left alone", func(w *World) string {
		if n := w.everMade(); w.broken == 0 && n > machines+w.deposedCount {
			return fmt.Sprintf("%d machines were created for %d", n, machines)
		}
		for _, m := range w.machines() {
			in := w.cloud.byID(m.Spec.ProviderID)
			c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionPowerStateReached)
			switch {
			case w.broken == 0 && !m.DeletionTimestamp.IsZero():
				return fmt.Sprintf("machine %s is deleted", m.Name)
			case w.broken == 0 && meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionRemediationRequested):
				return fmt.Sprintf("the replacement of machine %s is requested", m.Name)
			case c != nil && c.Reason == v1beta1.ReasonStopped && m.Spec.PowerState == v1beta1.PowerStopped && in != nil &&
				in.State == provider.StateRunning && in.switchAt.IsZero() && in.boots == 0:
				return fmt.Sprintf("machine %s reports that it is stopped, but its instance runs", m.Name)
			}
			if in == nil || in.node == "" {
				continue
			}
			if node := w.node(in.NodeName); node == nil || node.UID != in.node {
				return fmt.Sprintf("the Node of machine %s was replaced", m.Name)
			}
		}
		return ""
	})
}
