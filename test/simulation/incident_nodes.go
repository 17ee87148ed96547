package simulation

import (
	"context"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

const impatience = 8 * time.Minute

func troubledNodes() []Scenario {
	return []Scenario{
		{Name: "addresses-reused", Group: Incidents, Variants: 2, Script: reusedAddresses, MayDiffer: passedRevisions},
		{Name: "flapping-join", Group: Incidents, Script: inOrder([]Action{bootAtOnce(),
			trouble("the network of image c does not come up", func(t *cloudProblems) { t.flappingImage = "c" }),
			create(fleet(1, "c", joinsWithin(impatience))),
		}, lasting(4), []Action{
			trouble("the network of image c works again", func(t *cloudProblems) { t.flappingImage = "" }),
		}, lasting(1), []Action{scale(0)})},
		{Name: "slow-boot", Group: Incidents, Script: inOrder([]Action{bootAtOnce(),
			create(fleet(1, "with-token", joinsWithin(9*time.Hour))), delayJoins().onceThereIs(1, "instance"),
		}, lasting(37), []Action{revive(0)})},
		{Name: "node-deleted-while-away", Group: Incidents, Controllers: Health, Base: fleet(3, "a"),
			Script: deletedNodes},
	}
}

// reusedAddresses runs a cloud that reuses host names immediately. Instances end without a request, and new instances
// get the host names of the old ones. The old Nodes still exist then, and the machines have not noticed the loss.
func reusedAddresses(r *rand.Rand) []Action {
	actions := []Action{
		trouble("hosts are named after their addresses", func(t *cloudProblems) { t.byAddress = true }),
		create(fleet(2, "a", strategy(r.IntN(2), 1))).after(time.Second),
		breakInstance(r.IntN(2)).onceThereIs(2, "Node").after(30 * time.Second), scale(3),
		deleteMachine(r.IntN(2)).after(upTo(r, 40*time.Second)),
	}
	if r.IntN(2) == 0 {
		return append(actions, roll("b").after(upTo(r, time.Minute)))
	}
	return append(actions, breakInstance(r.IntN(3)).after(time.Minute), scale(4),
		deleteMachine(r.IntN(2)).after(upTo(r, time.Minute)))
}

// deletedNodes deletes a Node while the provider is not running or disconnected. The kubelet does not recreate the
// Node.
func deletedNodes(r *rand.Rand) []Action {
	actions := []Action{stopUsers(), removeNode(r.IntN(3))}
	if r.IntN(2) == 0 {
		actions = []Action{stopUsers(), outage(toControl, false), removeNode(r.IntN(3)).after(30 * time.Second),
			endOutage(toControl).after(upTo(r, 2*time.Minute))}
	}
	return append(actions, wait(healthTimeout))
}

func removeNode(i int) Action {
	return Action{Name: "delete a node", Do: func(ctx context.Context, w *World, _ client.Client) error {
		nodes := w.target.Snapshot(nodeKind)
		if len(nodes) == 0 {
			return nil
		}
		node := nodes[i%len(nodes)]
		w.logf("the node is %s", node.GetName())
		return client.IgnoreNotFound(w.hand(w.target).Delete(ctx, node.DeepCopyObject().(*corev1.Node)))
	}}
}

// mayWaitForNode checks that a machine whose Node never becomes Ready fails within three join timeouts, however often
// the Node changes. Restarts and other faults may delay the failure.
func (o *oracle) mayWaitForNode() {
	t := &o.world.cloud.troubles
	if t.flappingImage == "" && t.silentImage == "" {
		return
	}
	for _, m := range o.machines {
		in := o.world.cloud.byID(m.Spec.ProviderID)
		if in == nil || !in.hasImage(t.flappingImage) && !in.hasImage(t.silentImage) || !m.DeletionTimestamp.IsZero() ||
			m.Status.FailureReason != "" || m.Status.Phase == v1beta1.MachineRunning {
			continue
		}
		if age := o.world.clock.Since(m.CreationTimestamp.Time); age > 3*impatience+patience/2 {
			o.breach("join", "machine %s has waited for its node to become Ready for %s, want at most %s", m.Name, age,
				m.Spec.Timeouts.CreationOrDefault())
		}
	}
}
