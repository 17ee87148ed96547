package simulation

import (
	"context"
	"math/rand/v2"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

func failureScenarios() []Scenario {
	return []Scenario{
		{Name: "vanished-with-hook", Group: Disruptions, Variants: 2, Base: fleet(3, "a", strategy(1, 1)),
			InitialActions: []Action{setBudget(budget("pace", "1"))}, Script: vanishesWithHook, MayDiffer: anyEnd},
		{Name: "retries-of-failed", Group: HealthChecks, Controllers: Health, Base: fleet(2, "a", joinsWithin(impatience)),
			InitialActions: []Action{retriesLimited(1)}, Script: retriesFail, MayDiffer: anyEnd},
		{Name: "replacements-failing", Group: Lifecycle, Script: inOrder(replacementsFail()), MayDiffer: anyEnd},
	}
}

// vanishesWithHook rolls out a fleet while a hook delays the deletion of a machine without an instance. The hook
// remains until the rollout has finished, so the rollout must not wait for this machine.
func vanishesWithHook(r *rand.Rand) []Action {
	const owner = "person"
	i := r.IntN(3)
	hooked := func(m *v1beta1.Machine) bool { return len(m.Spec.LifecycleHooks.PreDrain) > 0 }
	hold := Action{Name: "set a hook on a machine", Do: func(ctx context.Context, w *World, c client.Client) error {
		m := w.machines()[i]
		changed := m.DeepCopy()
		changed.Spec.LifecycleHooks.PreDrain = []v1beta1.LifecycleHook{{Name: "backup.example.com", Owner: owner}}
		return c.Patch(ctx, changed, client.MergeFrom(m))
	}}
	vanish := Action{Name: "the machine's instance vanishes", Do: func(_ context.Context, w *World, _ client.Client) error {
		for _, m := range w.machines() {
			if hooked(m) {
				w.cloud.instances = slices.DeleteFunc(w.cloud.instances, func(in *instance) bool {
					return in.ProviderID == m.Spec.ProviderID
				})
			}
		}
		return nil
	}}
	rolled := func(w *World) bool {
		updated := 0
		for _, m := range w.machines() {
			switch {
			case hooked(m):
			case m.Spec.ClassRef.Name != "b" || m.Status.Phase != v1beta1.MachineRunning || isDeleting(m):
				return false
			default:
				updated++
			}
		}
		return updated >= 3
	}
	release := changeMachines("remove the hook", func(m *v1beta1.Machine) { m.Spec.LifecycleHooks.PreDrain = nil })
	return []Action{hold, vanish, roll("b").waitFor("the machine is being deleted", func(w *World) bool {
		return slices.ContainsFunc(w.machines(), func(m *v1beta1.Machine) bool { return hooked(m) && isDeleting(m) })
	}), release.waitFor("the rollout is complete", rolled)}
}

func retriesLimited(n int32) Action {
	check := checkOf("100%", deployment)
	return Action{Name: check.Name, Do: func(ctx context.Context, w *World, c client.Client) error {
		if err := check.Do(ctx, w, c); err != nil {
			return err
		}
		o := &v1beta1.MachineHealthCheck{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "check"}, o); err != nil {
			return err
		}
		o.Spec.Remediation.MaxRetries = &n
		return c.Update(ctx, o)
	}}
}

// mostRetries limits how many machines are created in succession without joining. The limit includes the first
// replacement and one retry. A restart or a former leader may lose a count and so add one machine.
const mostRetries = 5

// retriesFail first replaces a machine, and the replacements never join. Then the cause is fixed and the failed machine
// is deleted.
func retriesFail(*rand.Rand) []Action {
	failed := func(m *v1beta1.Machine) bool { return m.Status.Phase == v1beta1.MachineFailed }
	return slices.Concat([]Action{
		trouble("machines of image a no longer join", func(t *cloudProblems) { t.silentImage, t.mostSilent = "a", mostRetries }),
		breakInstance(0),
	}, lasting(8), []Action{
		trouble("machines of image a join again", func(t *cloudProblems) { t.silentImage = "" }),
		{Name: "delete failed machines", Do: func(ctx context.Context, w *World, c client.Client) error {
			for _, m := range w.machines() {
				if failed(m) {
					if err := c.Delete(ctx, m.DeepCopy()); client.IgnoreNotFound(err) != nil {
						return err
					}
				}
			}
			return nil
		}},
	}, lasting(7)) // A machine that has run for an hour ends the series of retries.
}

// mostFailing limits the machines that a fleet of one may create in two and a half hours if none of them joins. Six
// machines are regular: the first machine, three replacements, and one more replacement in each of the next two hours.
// A restart or a former leader may leave one failure uncounted, which adds one machine each. If a client removes the
// condition that stops the set, the set may create three more machines.
const mostFailing = 11

// replacementsFail creates machines that never join until the image is fixed. The next attempt then joins.
func replacementsFail() []Action {
	return slices.Concat([]Action{bootAtOnce(),
		trouble("machines of image c do not join", func(t *cloudProblems) { t.silentImage, t.mostSilent = "c", mostFailing }),
		create(fleet(1, "c", joinsWithin(impatience))),
	}, lasting(15), []Action{trouble("machines of image c join", func(t *cloudProblems) { t.silentImage = "" })}, lasting(8))
}

// mayRetry limits the machines that were created and did not join, in scenarios that limit retries.
func (o *oracle) mayRetry() {
	if t := &o.world.cloud.troubles; t.mostSilent > 0 && t.madeSilent > t.mostSilent {
		o.breach("retries", "%d machines in a row that had not joined were replaced", t.madeSilent-1)
	}
}
