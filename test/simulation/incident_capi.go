package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// This file contains incidents of Cluster API, its infrastructure providers and OpenShift's machine API, in which
// fleets grew without end, shrank too much, or got stuck.

func clusterAPIIncidents() []Scenario {
	all := slices.Concat(fleetIncidents(), nodeIncidents())
	for i := range all {
		all[i].Group, all[i].OwnCloud = Incidents, true
	}
	return all
}

func fleetIncidents() []Scenario {
	patient := joinsWithin(8 * time.Minute)
	web := []app{{name: "web", kind: ReplicaSet, replicas: 3, minAvailable: 2, grace: 90, slow: true}}
	return []Scenario{
		{Name: "incident-policy-relabels", Base: fleet(1, "a"), Script: relabelled},
		{Name: "incident-image-never-ready", Controllers: Health, Base: fleet(3, "a", strategy(1, 0), patient),
			Script: neverReady},
		{Name: "incident-webhook-down", Base: fleet(2, "a", strategy(1, 0), patient), Script: withoutWebhook},
		{Name: "incident-scaled-back-at-once", Variants: 2, Base: fleet(2, "a"), Script: scaledBack},
		{Name: "incident-slow-drains-in-a-roll", Base: fleet(3, "a", strategy(1, 0), drained), Apps: web,
			Script: rolledSlowly},
		{Name: "incident-roll-of-silent-nodes", Base: fleet(3, "a", strategy(1, 0)), Script: rolledSilent},
		{Name: "incident-roll-in-percent", Base: fleet(3, "a", surgeInPercent), Script: rolledInPercent},
		{Name: "incident-restored-without-owners", Variants: 2, Base: fleet(2, "a"),
			InitialActions: []Action{create(fleet(2, "a", withName("api")))}, Script: restoreActions},
		{Name: "incident-deleted-while-manager-is-down", Base: fleet(3, "a"), Script: deletedUnseen},
	}
}

// relabelled runs a policy engine that changes the labels by which a set selects its machines, until an administrator
// stops it.
func relabelled(r *rand.Rand) []Action {
	// The maximum for a set with 2 replicas and a surge of 1, plus one machine of a former leader.
	const most = 2*2 + 1 + 10 + 1
	actions := []Action{
		addStatement("a set does not create machines without end while another controller takes its machines", func(w *World) string {
			if n := w.liveMachines(); n > most {
				return fmt.Sprintf("there are %d machines, want 2", n)
			}
			return ""
		}),
		changeWorld("a policy engine begins to label machines", func(w *World) { w.outside.relabels = true }), scale(2),
	}
	return append(actions, wait(3*time.Minute),
		changeWorld("the policy engine is fixed", func(w *World) { w.outside.relabels = false }),
		Action{Name: "delete the machines without a set", MinDelay: upTo(r, time.Minute), Condition: func(w *World) bool {
			return !slices.ContainsFunc(w.machines(), func(m *v1beta1.Machine) bool {
				return owned(m) != "unowned" && m.Labels["app"] != deployment
			})
		}, Do: func(ctx context.Context, w *World, c client.Client) error {
			for _, m := range w.withoutOwners() {
				if err := client.IgnoreNotFound(c.Delete(ctx, m.DeepCopy())); err != nil {
					return err
				}
			}
			return nil
		}})
}

// neverReady rolls out an image whose nodes never become ready, for almost an hour. A health check replaces the
// machines before their join timeout. The rollout is reverted after the deployment has reported that the revision
// fails.
func neverReady(r *rand.Rand) []Action {
	actions := []Action{
		changeWorld("image b is broken", func(w *World) { w.cloud.outside.brokenClass = "b" }), check("100%"),
		addStatement("a broken image costs only a few machines", func(w *World) string {
			if n := w.everMade() - 3; n > 12 {
				return fmt.Sprintf("%d machines of the broken image were created", n)
			}
			return ""
		}),
		addStatement("the machines of the previous image stay", func(w *World) string {
			n := 0
			for _, m := range w.machines() {
				if m.DeletionTimestamp.IsZero() && m.Spec.ClassRef.Name == "a" {
					n++
				}
			}
			if n < 3 {
				return fmt.Sprintf("%d of 3 machines are left", n)
			}
			return ""
		}),
		roll("b"),
	}
	actions = append(actions, lasting(3+r.IntN(2))...)
	return append(actions, roll("a").waitFor("the deployment reports that the revision fails", revisionFails))
}

func revisionFails(w *World) bool {
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineDeployment")) {
		for _, c := range o.(*v1beta1.MachineDeployment).Status.Conditions {
			if c.Type == v1beta1.ConditionProgressing && c.Reason == v1beta1.ReasonRevisionFailing {
				return true
			}
		}
	}
	return false
}

// withoutWebhook changes a fleet while all writes of machines fail.
func withoutWebhook(r *rand.Rand) []Action {
	change := []Action{scale(int32(1 + 2*r.IntN(2))), deleteMachine(r.IntN(2)), roll("b")}
	r.Shuffle(len(change), func(i, j int) { change[i], change[j] = change[j], change[i] })
	length := []time.Duration{40 * time.Second, 4 * time.Minute, 12 * time.Minute}[r.IntN(3)]
	down := webhookDown(length)
	down.MinDelay = []time.Duration{0, 2 * time.Second, 15 * time.Second}[r.IntN(3)]
	return []Action{
		addStatement("failed writes are repeated at growing intervals", func(w *World) string {
			if w.outside.refused > 150 {
				return fmt.Sprintf("%d writes were refused", w.outside.refused)
			}
			return ""
		}), change[0], down, change[1].after(upTo(r, 20*time.Second)), change[2].after(upTo(r, 20*time.Second)),
	}
}

// scaledBack scales down a growing fleet by one, with each delete policy.
func scaledBack(r *rand.Rand) []Action {
	policy := []v1beta1.DeletePolicy{v1beta1.DeleteNewest, v1beta1.DeleteOldest, v1beta1.DeleteRandom}[r.IntN(3)]
	return []Action{
		edit(fmt.Sprintf("delete policy %s", policy), func(d *v1beta1.MachineDeployment) {
			d.Spec.DeletePolicy = policy
		}),
		addStatement("scaling down by one deletes one machine", func(w *World) string {
			// A former leader may have created one surplus machine.
			if n := w.everMade(); n > 5+w.deposedCount {
				return fmt.Sprintf("%d machines were created, want 5", n)
			}
			if n := w.deletedBy(Manager); n > 1+w.deposedCount {
				return fmt.Sprintf("%d machines were deleted, want 1", n)
			}
			return ""
		}),
		scale(5), scale(4).onceMade(3 + r.IntN(3)),
	}
}

// rolledSlowly rolls out a fleet whose drains take longer than the start of a new machine.
func rolledSlowly(*rand.Rand) []Action {
	return []Action{addStatement("a rollout uses no more instances than its strategy allows", func(w *World) string {
		// The strategy allows replicas + maxSurge live machines, and one machine at a time that is being deleted. Each
		// former leader may have created one more machine.
		if n := len(w.cloud.instances); n > 3+1+1+w.deposedCount {
			return fmt.Sprintf("there are %d instances for 3 replicas", n)
		}
		return ""
	}), roll("b")}
}

func rolledSilent(r *rand.Rand) []Action {
	var actions []Action
	for range 3 {
		actions = append(actions, silence(0).after(upTo(r, 20*time.Second)))
	}
	return append(actions, roll("b").after(upTo(r, 2*time.Minute)))
}

func surgeInPercent(d *v1beta1.MachineDeployment) {
	strategy(0, 1)(d)
	surge, unavailable := intstr.FromString("35%"), intstr.FromInt(0)
	d.Spec.Strategy.RollingUpdate.MaxSurge, d.Spec.Strategy.RollingUpdate.MaxUnavailable = &surge, &unavailable
}

// rolledInPercent rolls out a fleet with a surge in percent, which is rounded up to two machines.
func rolledInPercent(r *rand.Rand) []Action {
	return []Action{addStatement("a rollout deletes each old machine once", func(w *World) string {
		if n := w.everMade(); n > 3+3 {
			return fmt.Sprintf("%d machines were created, want 3 old and 3 new ones", n)
		}
		return ""
	}), roll("b"), bringUp(Manager, r.IntN(4)).onceMade(4 + r.IntN(2))}
}

// restoreActions returns actions that restore the control cluster from a backup without owner references. The manager
// starts afterwards.
func restoreActions(r *rand.Rand) []Action {
	restore := Action{Name: "restore all objects without their owners", Do: func(ctx context.Context, w *World,
		c client.Client) error {
		for _, p := range w.processes {
			if p.name == Manager && !p.dead {
				p.die()
			}
		}
		for _, kind := range []string{"Machine", "MachineSet"} {
			for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind(kind)) {
				changed := o.DeepCopyObject().(client.Object)
				changed.SetOwnerReferences(nil)
				if err := c.Patch(ctx, changed, client.MergeFrom(o)); err != nil {
					return err
				}
			}
		}
		return nil
	}}
	return []Action{addStatement("a restored fleet keeps its machines", func(w *World) string {
		if n := w.everMade(); n > 4 {
			return fmt.Sprintf("%d machines were created although 4 exist", n-4)
		}
		if n := w.deletedBy(Manager); n > 0 {
			return fmt.Sprintf("%d machines were deleted", n)
		}
		return ""
	}), restore, bringUp(Manager, r.IntN(6)).after(upTo(r, time.Minute))}
}

// deletedUnseen deletes a deployment with all its dependents while the manager is not running. When the manager starts
// again, its first lists still contain most of the deleted objects.
func deletedUnseen(r *rand.Rand) []Action {
	policy := []metav1.DeletionPropagation{metav1.DeletePropagationForeground,
		metav1.DeletePropagationBackground}[r.IntN(2)]
	late := 3 + r.IntN(12)
	unseen := Action{Name: fmt.Sprintf("the manager dies, and the deployment is deleted, %s", policy),
		Do: func(ctx context.Context, w *World, c client.Client) error {
			for _, p := range w.processes {
				if p.name == Manager && !p.dead {
					p.die()
					p.rewind = late
				}
			}
			d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deployment}}
			return client.IgnoreNotFound(c.Delete(ctx, d, client.PropagationPolicy(policy)))
		}}
	return []Action{addStatement("no machine is created for a deployment that is being deleted", func(w *World) string {
		if n := w.everMade(); n > 3 {
			return fmt.Sprintf("%d machines were created", n-3)
		}
		return ""
	}), unseen}
}
