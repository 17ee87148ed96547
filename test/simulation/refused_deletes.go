package simulation

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/pkg/provider"
)

// refusedDeletes is the state of a cloud that refuses deletions. The error says when the process may retry.
type refusedDeletes struct {
	on          bool
	lastRefused map[uid]refusedCall
}

type refusedCall struct {
	life int
	at   time.Time
}

func (r refusedDeletes) clone() refusedDeletes {
	r.lastRefused = maps.Clone(r.lastRefused)
	return r
}

const refusalRetryAfter = time.Minute

// refusedDeleteScenarios returns scenarios in which the cloud refuses deletions, while a CNI plugin annotates the Nodes
// of the machines all the time.
func refusedDeleteScenarios() []Scenario {
	actions := []Action{
		trouble("the cloud refuses to delete instances", func(t *cloudProblems) { t.deletes.on = true }), scale(1),
	}
	for i := range 12 {
		actions = append(actions, annotateNodes(i))
	}
	actions = append(actions,
		trouble("the cloud deletes instances again", func(t *cloudProblems) { t.deletes.on = false }), wait(10*time.Minute))
	return []Scenario{{Name: "deletes-refused", Group: Lifecycle, Base: fleet(3, "a"), Script: inOrder(actions)}}
}

func annotateNodes(i int) Action {
	return Action{Name: "annotate the nodes", MinDelay: 5 * time.Second,
		Do: func(ctx context.Context, w *World, _ client.Client) error {
			for _, o := range w.target.Snapshot(nodeKind) {
				before := o.(*corev1.Node)
				node := before.DeepCopy()
				metav1.SetMetaDataAnnotation(&node.ObjectMeta, "cni.example.com/address", fmt.Sprint(i))
				if err := w.hand(w.target).Patch(ctx, node, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
					return err
				}
			}
			return nil
		}}
}

// refusesDelete refuses a Delete, and checks that the process waits before the next one. A restarted process does not
// know how long to wait, and after a corruption it may retry immediately. The orphan collection is exempt, because it
// calls the cloud once in each period. In real installations, this period is longer than any RetryAfter.
func (d driver) refusesDelete(machine provider.Machine) error {
	r, w := &d.troubles.deletes, d.process.world
	last, known := r.lastRefused[machine.UID]
	if known && !w.collecting() && d.process.life == last.life && w.corrupted == nil &&
		d.now().Sub(last.at) < refusalRetryAfter {
		w.oracle.breach("pace", "%s deletes the instance of machine %s again after %s, want a wait of %s",
			d.process.name, machine.Name, d.now().Sub(last.at), refusalRetryAfter)
	}
	if !r.on {
		return nil
	}
	w.disturbed, w.stepsAtFault = w.clock.at, w.steps
	return &provider.Error{Code: provider.Throttled, Message: "too many requests", RetryAfter: refusalRetryAfter}
}

func (d driver) noteRefused(machine provider.Machine, err error) {
	r := &d.troubles.deletes
	if !r.on || provider.RetryAfter(err) < refusalRetryAfter {
		return
	}
	if r.lastRefused == nil {
		r.lastRefused = map[uid]refusedCall{}
	}
	r.lastRefused[machine.UID] = refusedCall{d.process.life, d.now()}
}
