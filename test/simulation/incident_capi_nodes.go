package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// This file contains incidents of Cluster API, its infrastructure providers and OpenShift's machine API. Each incident
// affects single machines. Nodes are late or deleted too early, clouds report little, and certificate requests and
// drains never finish.

func nodeIncidents() []Scenario {
	stuck := []app{{name: "web", kind: ReplicaSet, replicas: 2, minAvailable: 2, grace: 20},
		{name: "db", kind: StatefulSet, replicas: 2, minAvailable: 2, grace: 5, volume: true}}
	return []Scenario{
		{Name: "incident-addresses-come-late", Controllers: Approval, Base: fleet(1, "with-token"),
			Script: addressesLate},
		{Name: "incident-requests-of-nobody", Controllers: Approval, Base: fleet(1, "with-token"),
			InitialActions: []Action{floodOfRequests()}, Script: func(r *rand.Rand) []Action {
				return []Action{scale(int32(2 + r.IntN(2)))}
			}},
		{Name: "incident-node-deleted", Variants: 2, Controllers: Health, Base: fleet(3, "a"),
			Script: nodesDeleted},
		{Name: "incident-node-deleted-then-machine", Base: fleet(2, "a", drained), Apps: stuck[:1],
			Script: nodeThenMachine},
		{Name: "incident-joins-while-it-goes", Variants: 2, Base: fleet(1, "a"), Script: joinsLate},
		{Name: "incident-two-of-three-vanish", Controllers: Health, Base: fleet(3, "a"), Script: twoVanish},
		{Name: "incident-silent-node-under-budgets", Base: fleet(2, "a", drained), Apps: stuck,
			Script: silentUnderBudgets},
	}
}

// addressesLate runs kubelets that request serving certificates before the cloud reports their addresses.
func addressesLate(r *rand.Rand) []Action {
	const after, most = time.Minute, 3 * time.Minute
	return []Action{
		changeWorld("instances get addresses late", func(w *World) { w.cloud.outside.addressesAfter = after }),
		addStatement("a certificate is approved soon after the cloud reports the addresses", func(w *World) string {
			for _, in := range w.cloud.instances {
				csr := w.requestNamed(in.serveName())
				since := in.born.Add(after)
				if csr == nil || csr.CreationTimestamp.After(since) || approved(csr) || !in.dying.IsZero() {
					continue
				}
				if waited := w.clockSteadySince(since); waited > most {
					return fmt.Sprintf("%s has waited for %s", csr.Name, waited)
				}
			}
			return ""
		}),
		scale(int32(2 + r.IntN(2))),
	}
}

// floodOfRequests returns an action that creates many unanswered certificate requests.
func floodOfRequests() Action {
	return Action{Name: "120 unknown requesters request certificates", Do: func(ctx context.Context, w *World,
		_ client.Client) error {
		for i := range 120 {
			asked := identity{user: "system:bootstrap:abcdef", groups: []string{"system:bootstrappers"},
				signer: "kubernetes.io/kube-apiserver-client-kubelet", node: fmt.Sprintf("nobody-%d", i)}
			csr, err := asked.request(fmt.Sprintf("nobody-%d", i))
			if err != nil {
				return err
			}
			if err := client.IgnoreAlreadyExists(w.target.Client(intruder).Create(ctx, csr)); err != nil {
				return err
			}
		}
		return nil
	}}
}

// nodesDeleted deletes Nodes while their kubelets run. Machines that are exempt from remediation remain, and get the
// Node back when the kubelet registers again. Other machines are replaced immediately.
func nodesDeleted(r *rand.Rand) []Action {
	switch r.IntN(3) {
	case 0:
		return []Action{stopUsers(), exemptAll(3), keepsMachines(3), deleteNode(r.IntN(3), true), deleteNode(r.IntN(3), true)}
	case 1:
		return []Action{stopUsers(), exemptAll(3), keepsMachines(3), deleteNode(r.IntN(3), false),
			revive(0).after(upTo(r, 4*time.Minute))}
	}
	return []Action{stopUsers(), deleteNode(r.IntN(3), false), replacedSoon()}
}

func exemptAll(n int) Action {
	return Action{Name: "exempt all machines from remediation",
		Condition: func(w *World) bool { return len(w.machines()) == n },
		Do: func(ctx context.Context, w *World, c client.Client) error {
			for _, m := range w.machines() {
				changed := m.DeepCopy()
				metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1beta1.AnnotationSkipRemediation, "")
				if err := c.Patch(ctx, changed, client.MergeFrom(m)); client.IgnoreNotFound(err) != nil {
					return err
				}
			}
			return nil
		}}
}

func replacedSoon() Action {
	const most = 3 * time.Minute
	return addStatement("a machine whose Node is gone is replaced soon", func(w *World) string {
		for _, m := range w.machines() {
			c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRegistered)
			if c == nil || c.Reason != v1beta1.ReasonNodeGone || !m.DeletionTimestamp.IsZero() {
				continue
			}
			if waited := w.clockSteadySince(c.LastTransitionTime.Time); waited > most {
				return fmt.Sprintf("machine %s has waited for %s", m.Name, waited)
			}
		}
		return ""
	})
}

func keepsMachines(n int) Action {
	return addStatement("no machine is replaced", func(w *World) string {
		if made, deleted := w.everMade(), w.deletedBy(Manager); made > n || deleted > 0 {
			return fmt.Sprintf("%d machines were created and %d deleted", made-n, deleted)
		}
		return ""
	})
}

func nodeThenMachine(r *rand.Rand) []Action {
	again := r.IntN(2) == 0
	return []Action{deleteNode(0, again),
		{Name: "delete the machine of the node", MinDelay: upTo(r, 40*time.Second), Do: func(ctx context.Context, w *World,
			c client.Client) error {
			for _, m := range w.machines() {
				if ref := m.Status.NodeRef; again || ref != nil && w.node(ref.Name) == nil {
					return client.IgnoreNotFound(c.Delete(ctx, m.DeepCopy()))
				}
			}
			return nil
		}}}
}

// joinsLate deletes machines of a slow cloud before they have Nodes. Their kubelets register during the deletion.
func joinsLate(r *rand.Rand) []Action {
	slow := changeWorld("kubelets work until their instances are gone", func(w *World) {
		w.cloud.outside.kubeletLingers, w.cloud.Shutdown, w.cloud.Boot = true, time.Minute, 20*time.Second
	})
	goes := Action{Name: "delete the machines without a node", Condition: func(w *World) bool { return len(w.cloud.instances) > 1 },
		MinDelay: upTo(r, 25*time.Second), Do: func(ctx context.Context, w *World, c client.Client) error {
			for _, m := range w.machines() {
				if m.Status.NodeRef == nil {
					if err := client.IgnoreNotFound(c.Delete(ctx, m.DeepCopy())); err != nil {
						return err
					}
				}
			}
			return nil
		}}
	if r.IntN(2) == 0 {
		return []Action{slow, scale(3), goes}
	}
	return []Action{slow, scale(3), scale(1).onceThereIs(2, "instance")}
}

// twoVanish returns actions that remove two of the three instances of a fleet. The health check allows fewer unhealthy
// machines.
func twoVanish(r *rand.Rand) []Action {
	return []Action{stopUsers(), check("40%"), breakInstance(r.IntN(3)),
		breakInstance(r.IntN(2)).after(upTo(r, 30*time.Second))}
}

// silentUnderBudgets deletes a machine whose node is silent, while the PodDisruptionBudgets of its pods allow no
// evictions.
func silentUnderBudgets(*rand.Rand) []Action {
	const most = drainTime + detachTime + 3*time.Minute
	return []Action{
		addStatement("the deletion of a machine ends although budgets allow nothing", func(w *World) string {
			for _, m := range w.machines() {
				if m.DeletionTimestamp.IsZero() {
					continue
				}
				if waited := w.clockSteadySince(m.DeletionTimestamp.Time); waited > most {
					return fmt.Sprintf("machine %s has been in deletion for %s: %s", m.Name, waited,
						meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionDeleting).Reason)
				}
			}
			return ""
		}),
		hangKubelet(), deleteSilent(),
	}
}
