package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// setScenarios returns scenarios in which a set must decide about two machines at once, and one of them is broken.
func setScenarios() []Scenario {
	solo := []Action{createSet("solo", 2, "a"), impatientSet("solo"), checkOf("100%", "solo")}
	return []Scenario{
		{Name: "replace-next-to-unhealthy", Group: HealthChecks, Controllers: Health, Variants: 4, InitialActions: solo,
			Script: replacesNextToUnhealthy, MayDiffer: anyEnd},
		{Name: "scale-down-next-to-pending", Group: Fleets, Variants: 3, Base: fleet(3, "a", strategy(1, 0)),
			Script: scaleDownNextToPending, MayDiffer: anyEnd},
	}
}

// replacesNextToUnhealthy returns actions that replace a machine of a standalone set, while this machine or another
// machine of the set is silent. Either the replacement does not join, a budget blocks it, or the set is scaled down.
func replacesNextToUnhealthy(r *rand.Rand) []Action {
	actions := []Action{stopUsers(), silence(0), replaceUnready(r.IntN(2) == 0)}
	if r.IntN(2) == 0 {
		slices.Reverse(actions[1:])
	}
	switch r.IntN(4) {
	case 0:
		actions = append(actions, delayJoins().onceThereIs(3, "instance"))
	case 1:
		actions = append(actions, setBudget(budget("replacements", "0", forReasons(v1beta1.DisruptionReplace))).
			after(upTo(r, time.Minute)), dropBudget("replacements").waitFor("no node is silent", noneSilent))
	case 2:
		actions = append(actions, scaleSet("solo", 1).after(upTo(r, time.Minute)))
	}
	return actions
}

func replaceUnready(silent bool) Action {
	return Action{Name: fmt.Sprintf("replace a machine with a silent kubelet: %t", silent), Do: func(ctx context.Context,
		w *World, c client.Client) error {
		machines := w.machines()
		i := slices.IndexFunc(machines, func(m *v1beta1.Machine) bool {
			in := w.cloud.byID(m.Spec.ProviderID)
			return in != nil && in.hung == silent
		})
		return replace(max(i, 0)).Do(ctx, w, c)
	}}
}

func noneSilent(w *World) bool {
	return !slices.ContainsFunc(w.cloud.instances, func(in *instance) bool { return in.hung })
}

func impatientSet(name string) Action {
	return editSet(name, "give machines less time to join", func(set *v1beta1.MachineSet) {
		set.Spec.Template.Spec.Timeouts.Creation = &metav1.Duration{Duration: impatience}
	})
}

func scaleSet(name string, replicas int32) Action {
	return editSet(name, "scale set "+name, func(set *v1beta1.MachineSet) { set.Spec.Replicas = &replicas })
}

func editSet(name, what string, change func(*v1beta1.MachineSet)) Action {
	return Action{Name: what, Do: func(ctx context.Context, _ *World, c client.Client) error {
		set := &v1beta1.MachineSet{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, set); err != nil {
			return client.IgnoreNotFound(err)
		}
		before := set.DeepCopy()
		change(set)
		return c.Patch(ctx, set, client.MergeFrom(before))
	}}
}

// scaleDownNextToPending returns actions that request one machine more than the quota allows. The request is withdrawn
// while one of the running machines has the delete mark.
func scaleDownNextToPending(r *rand.Rand) []Action {
	prefer := annotateOne("mark a running machine", r.IntN(3), v1beta1.AnnotationDeleteMachine,
		func(*World) string { return "" })
	if r.IntN(3) == 0 {
		prefer = annotateOne("prefer a running machine", r.IntN(3), v1beta1.AnnotationDeletePriority,
			func(*World) string { return "-1" })
	}
	return []Action{trouble("the quota is used up", func(t *cloudProblems) { t.quota = 3 }), scale(4),
		prefer.onceThereIs(4, "Machine"), scale(3).after(upTo(r, time.Minute)),
		trouble("further machines without quota count as a violation", func(t *cloudProblems) { t.isWithdrawn = true })}
}

// mostInVain limits the machines for which the cloud refuses an instance after the replicas were lowered to the quota.
// Two machines are allowed: the pending machine, and a machine that replaced it before the manager saw the change.
const mostInVain = 2

// mayFillRequests reports a breach if the manager repeatedly creates machines for a request that was withdrawn.
func (o *oracle) mayFillRequests() {
	if n := len(o.world.cloud.troubles.inVain); n > mostInVain {
		o.breach("scale-down", "%d machines without quota were created after the scale-down, want at most %d", n, mostInVain)
	}
}
