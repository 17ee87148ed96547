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

// refusedDeletes is a cloud that refuses to delete instances and states when to retry.
type refusedDeletes struct {
	on bool
	// last is the last refused call for each machine.
	last map[uid]refusedCall
}

// refusedCall is a refused call by a life of a process.
type refusedCall struct {
	life int
	at   time.Time
}

func (r refusedDeletes) clone() refusedDeletes {
	r.last = maps.Clone(r.last)
	return r
}

// refusalRetryAfter is the Retry-After of a refused Delete.
const refusalRetryAfter = time.Minute

// refusedDeleteScenarios returns scenarios in which the cloud refuses deletions while the Nodes of the machines
// change all the time, as with a CNI that annotates them.
func refusedDeleteScenarios() []Scenario {
	actions := []Action{
		trouble("the cloud refuses to delete instances", func(t *troubles) { t.deletes.on = true }), scale(1),
	}
	for i := range 12 {
		actions = append(actions, annotateNodes(i))
	}
	actions = append(actions,
		trouble("the cloud deletes instances again", func(t *troubles) { t.deletes.on = false }), wait(10*time.Minute))
	return []Scenario{{Name: "deletes-refused", Group: Lifecycle, Base: fleet(3, "a"), Script: inOrder(actions)}}
}

// annotateNodes returns an action in which a CNI writes to every Node.
func annotateNodes(i int) Action {
	return Action{Name: "annotate the nodes", Wait: 5 * time.Second,
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

// refusesDelete refuses a Delete, and checks that the process does not send it before the time that the cloud stated.
// Another life of the process does not know that time, and corrupted inputs may be retried at once. The orphan
// collection calls once in a period, which is longer than any Retry-After outside of this world.
func (d driver) refusesDelete(machine provider.Machine) error {
	r, w := &d.troubles.deletes, d.process.world
	if last, known := r.last[machine.UID]; known && !w.collecting() && d.process.life == last.life && w.corrupted == nil &&
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

// noteRefused stores the refusal that a process received.
func (d driver) noteRefused(machine provider.Machine, err error) {
	r := &d.troubles.deletes
	if !r.on || provider.RetryAfter(err) < refusalRetryAfter {
		return
	}
	if r.last == nil {
		r.last = map[uid]refusedCall{}
	}
	r.last[machine.UID] = refusedCall{d.process.life, d.now()}
}
