package simulation

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// setScenarios are those in which a set has to decide about a broken machine and about another one at the same time.
func setScenarios() []Scenario {
	solo := []Action{createSet("solo", 2, "a"), impatientSet("solo"), checkOf("100%", "solo")}
	return []Scenario{
		{Name: "replace-next-to-unhealthy", Group: HealthChecks, Controllers: Health, Variants: 4, Begin: solo,
			Script: replacesNextToUnhealthy, MayDiffer: anyEnd},
		{Name: "scale-down-next-to-pending", Group: Fleets, Variants: 3, Base: fleet(3, "a", strategy(1, 0)),
			Script: scaleDownNextToPending, MayDiffer: anyEnd},
	}
}

// replacesNextToUnhealthy replaces a machine of a set without a deployment, which is silent or next to a silent one.
// Meanwhile the replacement does not join, a budget holds the replacement back, or the set is scaled down.
func replacesNextToUnhealthy(r *rand.Rand) []Action {
	actions := []Action{steadily(), silence(0), replaceUnready(r.IntN(2) == 0)}
	if r.IntN(2) == 0 {
		slices.Reverse(actions[1:])
	}
	switch r.IntN(4) {
	case 0:
		actions = append(actions, delayJoins().onceThereIs(3, "instance"))
	case 1:
		actions = append(actions, setBudget(budget("replacements", "0", forReasons(v1beta1.DisruptionReplace))).
			after(some(r, time.Minute)), dropBudget("replacements").once("no node is silent", noneSilent))
	case 2:
		actions = append(actions, scaleSet("solo", 1).after(some(r, time.Minute)))
	}
	return actions
}

// replaceUnready asks for the replacement of a machine whose Node is silent, or of another one.
func replaceUnready(silent bool) Action {
	return Action{Name: "replace a machine, because its kubelet is silent or not", Do: func(ctx context.Context, w *World,
		c client.Client) error {
		machines := w.machines()
		i := slices.IndexFunc(machines, func(m *v1beta1.Machine) bool {
			in := w.cloud.byID(m.Spec.ProviderID)
			return in != nil && in.hung == silent
		})
		return replace(max(i, 0)).Do(ctx, w, c)
	}}
}

// noneSilent reports whether the kubelets of all instances report.
func noneSilent(w *World) bool {
	return !slices.ContainsFunc(w.cloud.instances, func(in *instance) bool { return in.hung })
}

// impatientSet gives the machines of a set less time to join.
func impatientSet(name string) Action {
	return editSet(name, "give machines less time to join", func(set *v1beta1.MachineSet) {
		set.Spec.Template.Spec.Timeouts.Creation = &metav1.Duration{Duration: impatience}
	})
}

// scaleSet gives a set without a deployment other replicas.
func scaleSet(name string, replicas int32) Action {
	return editSet(name, "scale set "+name, func(set *v1beta1.MachineSet) { set.Spec.Replicas = &replicas })
}

// editSet changes a set without a deployment.
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

// scaleDownNextToPending asks for a machine that the cloud has no room for and takes the request back, while one of the
// running machines is preferred for deletion.
func scaleDownNextToPending(r *rand.Rand) []Action {
	prefer := annotateOne("mark a running machine", r.IntN(3), v1beta1.AnnotationDeleteMachine,
		func(*World) string { return "" })
	if r.IntN(3) == 0 {
		prefer = annotateOne("prefer a running machine", r.IntN(3), v1beta1.AnnotationDeletePriority,
			func(*World) string { return "-1" })
	}
	return []Action{trouble("the quota is used up", func(t *troubles) { t.quota = 3 }), scale(4),
		prefer.onceThereIs(4, "Machine"), scale(3).after(some(r, time.Minute)),
		trouble("no machine is asked for in vain any more", func(t *troubles) { t.withdrawn = true })}
}

// mostInVain is how many machines may be refused an instance after their number was lowered to what the quota allows:
// the pending one, and one that replaced it while the change was on its way.
const mostInVain = 2

// mayFillRequests judges that a request which was taken back is not repeated without end.
func (o *oracle) mayFillRequests() {
	if n := len(o.world.cloud.troubles.inVain); n > mostInVain {
		o.breach("scale-down", "%d machines were created in vain after fewer were wanted", n)
	}
}
