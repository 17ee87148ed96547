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

// refusedDeletes is the state of a cloud that refuses to delete instances. The error of the cloud contains the time
// after which the process may try again.
type refusedDeletes struct {
	on bool
	// lastRefused contains the last refused call for each machine.
	lastRefused map[uid]refusedCall
}

// refusedCall is a call that the cloud has refused. A refusedCall also identifies the life of the process that made the
// call.
type refusedCall struct {
	life int
	at   time.Time
}

func (r refusedDeletes) clone() refusedDeletes {
	r.lastRefused = maps.Clone(r.lastRefused)
	return r
}

// refusalRetryAfter is the value of RetryAfter in the error of a refused Delete.
const refusalRetryAfter = time.Minute

// refusedDeleteScenarios returns scenarios in which the cloud refuses deletions. Meanwhile, the Nodes of the machines
// change all the time, because a CNI plugin annotates them.
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

// annotateNodes returns an action in which a CNI plugin changes every Node.
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

// refusesDelete refuses a Delete, and also checks that the process does not send another Delete before the stated time.
// There are exceptions: after a restart, the process does not know this time, and after a corruption it may try again
// immediately. The orphan collection is another exception, because it calls the cloud only once in each period. Outside
// of this world, the period is longer than any RetryAfter.
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

// noteRefused records a refusal that a process has received.
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
