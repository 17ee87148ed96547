package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/invariants"
)

func rebootScenarios() []Scenario {
	web := []app{{name: "web", kind: ReplicaSet, replicas: 2, minAvailable: 1, grace: 20, slow: true}}
	scenario := func(name string, variants int, base *v1beta1.MachineDeployment, apps []app,
		script func(*rand.Rand) []Action) Scenario {
		return Scenario{Name: name, Group: Power, Controllers: withPower(name), Variants: variants, Base: base, Apps: apps,
			Script: script, MayDiffer: anyEnd} // After a breakage, the rebooted machine may be replaced.
	}
	two, three := fleet(2, "a", drained), fleet(3, "a")
	return []Scenario{
		scenario("reboot", 2, two, web, func(r *rand.Rand) []Action {
			actions := []Action{leavesRebootedMachines(), requestReboot("one")}
			if r.IntN(2) == 0 {
				actions = append(actions, requestReboot("two").after(upTo(r, 2*time.Minute)))
			}
			return append(actions, lasting(2)...)
		}),
		scenario("reboot-shutdown-ignored", 1, two, nil, func(*rand.Rand) []Action {
			return append([]Action{leavesRebootedMachines(),
				changeWorld("shutdowns are ignored", func(w *World) { w.cloud.ignoresShutdown = true }),
				requestReboot("one")}, lasting(2)...)
		}),
		scenario("reboot-no-capacity", 1, two, nil, func(*rand.Rand) []Action {
			return append([]Action{leavesRebootedMachines(),
				changeWorld("the cloud has no capacity for 15 minutes", func(w *World) {
					w.cloud.noCapacityUntil = w.clock.at.Add(15 * time.Minute)
				}), requestReboot("one")}, lasting(3)...)
		}),
		{Name: "reboot-then-stop", Group: Power, Controllers: Health, Variants: 2, Base: two,
			Script: func(r *rand.Rand) []Action {
				return append([]Action{leavesRebootedMachines(), requestReboot("one"),
					setPowerState(v1beta1.PowerStopped).after(upTo(r, time.Minute)),
					setPowerState(v1beta1.PowerRunning).waitFor("the machine is stopped", isStopped)}, lasting(1)...)
			}, MayDiffer: withoutCondition("machine", v1beta1.ConditionRebooted)}, // The stop may come after the reboot.
		scenario("reboot-heals", 2, three, nil, func(r *rand.Rand) []Action {
			return append([]Action{stopUsers(), leavesRebootedMachines(), checkWithReboots(),
				changeWorld("a reboot heals", func(w *World) { w.cloud.rebootHeals = true }), silence(r.IntN(3)),
				wait(0).waitFor("an instance was rebooted", rebooted)}, lasting(2)...)
		}),
		scenario("reboot-does-not-heal", 2, three, nil, func(r *rand.Rand) []Action {
			return append([]Action{stopUsers(), checkWithReboots(), silence(r.IntN(3)),
				wait(0).waitFor("an instance was rebooted", rebooted),
				wait(0).waitFor("a machine was replaced", func(w *World) bool { return w.everMade() > 3 })}, lasting(1)...)
		}),
	}
}

// checkWithReboots returns an action that creates a health check that reboots unhealthy machines first.
func checkWithReboots() Action {
	create := check(v1beta1.DefaultMaxUnhealthy)
	return Action{Name: "create a health check that reboots machines", Do: func(ctx context.Context, w *World,
		c client.Client) error {
		return create.Do(ctx, w, withReboots{c})
	}}
}

// withReboots is a client that creates health checks with reboots.
type withReboots struct{ client.Client }

func (c withReboots) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	o.(*v1beta1.MachineHealthCheck).Spec.Remediation.Type = v1beta1.RemediationReboot
	return c.Client.Create(ctx, o, options...)
}

// requestReboot sets the annotation of the first machine.
func requestReboot(value string) Action {
	return Action{Name: "request the reboot " + value, Do: func(ctx context.Context, w *World, c client.Client) error {
		machines := w.machines()
		if len(machines) == 0 {
			return nil
		}
		changed := machines[0].DeepCopy()
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1beta1.AnnotationReboot, value)
		w.logf("the machine is %s", changed.Name)
		return client.IgnoreNotFound(c.Patch(ctx, changed, client.MergeFrom(machines[0])))
	}}
}

// rebooted reports whether an instance was started again, or is not listed any more.
func rebooted(w *World) bool {
	return slices.ContainsFunc(w.cloud.instances, func(in *instance) bool { return in.boots > 0 }) || w.everMade() > 3
}

// mayRebootForCheck checks that a health check does not reboot a machine that had been healthy before the instance was
// stopped.
func (o *oracle) mayRebootForCheck(m *v1beta1.Machine) {
	power, requested := m.Status.Power, m.Annotations[v1beta1.AnnotationReboot]
	if !strings.HasPrefix(requested, "remediation-") || power == nil || m.Status.NodeRef == nil || o.world.safety.nodes == nil {
		return
	}
	o.judged["reboot for check"]++
	if h, known := o.world.safety.healthOf(m); known && h.healthy && power.Since.Sub(h.since) > healthKnownAfter {
		o.breach("reboot", "a health check reboots machine %s, which was healthy since %s", m.Name, h.since.Sub(epoch))
	}
}

// mayReboot checks a request to start the instance of a machine without powerState: there is at most one start for each
// value of the annotation.
func (o *oracle) mayReboot(in *instance, id uid) {
	m := o.machines[id]
	if m == nil || in.owner() != id {
		return
	}
	if in.State == provider.StateRunning && !in.switchAt.IsZero() && in.switchTo == provider.StateStopped {
		o.breach("power", "instance %s of machine %s is started before its shutdown is complete", in.ProviderID, m.Name)
	}
	versions := o.allVersions(id)
	if invariants.WasSwitched(versions) {
		return
	}
	o.judged["reboot"]++
	if reboots := invariants.Reboots(versions); in.boots > reboots || in.boots == reboots &&
		in.State != provider.StateRunning && in.switchAt.IsZero() {
		o.breach("reboot", "instance %s of machine %s is started again after %d starts, but %d reboots were requested",
			in.ProviderID, m.Name, in.boots, reboots)
	}
}

// leavesRebootedMachines checks after each write that a reboot replaces no machine and no Node.
func leavesRebootedMachines() Action {
	return addStatement("rebooted machines stay", func(w *World) string {
		if w.broken > 0 {
			return "" // After a breakage, machines may be replaced.
		}
		for _, m := range w.machines() {
			in := w.cloud.byID(m.Spec.ProviderID)
			if !m.DeletionTimestamp.IsZero() {
				return fmt.Sprintf("machine %s is deleted", m.Name)
			}
			c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
			if c != nil && c.Reason != v1beta1.ReasonRebootRequested {
				return fmt.Sprintf("the replacement of machine %s is requested", m.Name)
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
