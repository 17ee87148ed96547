package simulation

import (
	"context"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// impatience is the time that machines have to join in scenarios where none does.
const impatience = 8 * time.Minute

// troubledNodes are those whose cause is at nodes: names that come back, conditions that flap, kubelets that are late.
func troubledNodes() []Scenario {
	return []Scenario{
		{Name: "addresses-reused", Group: Incidents, Variants: 2, Script: reusedAddresses, MayDiffer: passedRevisions},
		{Name: "flapping-join", Group: Incidents, Script: inOrder([]Action{bootAtOnce(),
			trouble("the network of image c does not come up", func(t *troubles) { t.flapping = "c" }),
			create(fleet(1, "c", joinsWithin(impatience))),
		}, lasting(4), []Action{trouble("the network is mended", func(t *troubles) { t.flapping = "" })}, lasting(1),
			[]Action{scale(0)})},
		{Name: "slow-boot", Group: Incidents, Script: inOrder([]Action{bootAtOnce(),
			create(fleet(1, "with-token", joinsWithin(9*time.Hour))), delayJoins().onceThereIs(1, "instance"),
		}, lasting(37), []Action{revive(0)})},
		{Name: "node-deleted-while-away", Group: Incidents, Controllers: Health, Base: fleet(3, "a"),
			Script: deletedNodes},
	}
}

// reusedAddresses is instances that end by themselves at a cloud that gives the name of a host to the next one as soon
// as it is free, while the Node of that name is there and its machine does not know yet.
func reusedAddresses(r *rand.Rand) []Action {
	actions := []Action{
		trouble("hosts are named after their addresses", func(t *troubles) { t.byAddress = true }),
		create(fleet(2, "a", strategy(r.IntN(2), 1))).after(time.Second),
		breakInstance(r.IntN(2)).onceThereIs(2, "Node").after(30 * time.Second), scale(3),
		deleteMachine(r.IntN(2)).after(some(r, 40*time.Second)),
	}
	if r.IntN(2) == 0 {
		return append(actions, roll("b").after(some(r, time.Minute)))
	}
	return append(actions, breakInstance(r.IntN(3)).after(time.Minute), scale(4),
		deleteMachine(r.IntN(2)).after(some(r, time.Minute)))
}

// deletedNodes is a Node that somebody deletes while the provider is not there. Its kubelet does not make another one.
func deletedNodes(r *rand.Rand) []Action {
	actions := []Action{steadily(), removeNode(r.IntN(3))}
	if r.IntN(2) == 0 {
		actions = []Action{steadily(), outage(toControl, false), removeNode(r.IntN(3)).after(30 * time.Second),
			back(toControl).after(some(r, 2*time.Minute))}
	}
	return append(actions, wait(healthTimeout))
}

// removeNode has a person delete the Node of one of the machines, whichever is the i-th then.
func removeNode(i int) Action {
	return Action{Name: "delete a node", Do: func(ctx context.Context, w *World, _ client.Client) error {
		nodes := w.target.Snapshot(nodeKind)
		if len(nodes) == 0 {
			return nil
		}
		node := nodes[i%len(nodes)]
		w.logf("it is %s", node.GetName())
		return client.IgnoreNotFound(w.hand(w.target).Delete(ctx, node.DeepCopyObject().(*corev1.Node)))
	}}
}

// mayWaitOn judges that a machine whose Node is never Ready, however often it changes, has its time and no more: three
// times that over processes that follow each other, and what goes wrong beside.
func (o *oracle) mayWaitOn() {
	t := &o.world.cloud.troubles
	if t.flapping == "" && t.silent == "" {
		return
	}
	for _, m := range o.machines {
		in := o.world.cloud.byID(m.Spec.ProviderID)
		if in == nil || !in.of(t.flapping) && !in.of(t.silent) || !m.DeletionTimestamp.IsZero() ||
			m.Status.FailureReason != "" || m.Status.Phase == v1beta1.MachineRunning {
			continue
		}
		if age := o.world.clock.Since(m.CreationTimestamp.Time); age > 3*impatience+patience/2 {
			o.breach("join", "machine %s waits for a node that is not Ready for %s, and has %s", m.Name, age,
				m.Spec.Timeouts.CreationOrDefault())
		}
	}
}
