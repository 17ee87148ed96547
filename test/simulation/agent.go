package simulation

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/apiserver"
)

// Agents on nodes. One brings its node to the version that it is asked for, takes its time and fails now and then; of
// what it does the cloud knows nothing. Machines of one class have them.

const (
	// agentClass is the class of machines with an agent, whose kubelets begin with firstVersion.
	agentClass   = "with-agent"
	firstVersion = "v1.36.3"
	// mostFailures is how often the agents of a run may fail.
	mostFailures = 2
)

// agent is what the agent on an instance is about.
type agent struct {
	// kubelet is the version that runs.
	kubelet string
	// working is the version that it works at, "" for none; answer is what it is yet to say of the version worked.
	working, worked, answer string
}

// updates changes the version of machines with agents, several times in a row, while other things happen.
func updates(r *rand.Rand) []Action {
	var actions []Action
	for range 1 + r.IntN(3) {
		actions = append(actions, upgrade([]string{firstVersion, "v1.36.4", "v1.36.5"}[r.IntN(3)]))
		switch r.IntN(8) {
		case 0:
			actions = append(actions, scale(int32(1+r.IntN(3))))
		case 1:
			actions = append(actions, pause(true), pause(false))
		case 2:
			actions = append(actions, label("gold"))
		}
	}
	return actions
}

// thenUpdate changes the version once more while agents are busy with the one before, or when one of them has just
// answered.
func thenUpdate(version string) func(*rand.Rand) []Action {
	return func(r *rand.Rand) []Action {
		next := upgrade(version)
		if r.IntN(2) == 0 {
			next = next.once("an agent is asked", func(w *World) bool {
				return w.anyNodeHas(v1beta1.NodeAnnotationUpdateRequested) || w.settledWith("v1.36.4")
			})
		} else {
			next = next.once("an agent has answered", func(w *World) bool {
				return w.anyNodeHas(v1beta1.NodeAnnotationUpdateResult) || w.settledWith("v1.36.4")
			})
		}
		return []Action{upgrade("v1.36.4"), next}
	}
}

// anyNodeHas reports whether a Node has an annotation.
func (w *World) anyNodeHas(key string) bool {
	return slices.ContainsFunc(w.target.Snapshot(nodeKind), func(o client.Object) bool {
		_, has := o.GetAnnotations()[key]
		return has
	})
}

// settledWith reports whether all kubelets of agents are of a version, and no agent has anything to say.
func (w *World) settledWith(version string) bool {
	return !slices.ContainsFunc(w.cloud.instances, func(in *instance) bool {
		return in.kubelet != version || in.answer != ""
	})
}

// agents returns what agents on nodes, and people those that they failed, may do now.
func (w *World) agents() (out []choice) {
	for _, in := range w.cloud.instances {
		node := w.node(in.NodeName)
		if in.kubelet == "" || in.State != provider.StateRunning || node == nil || node.Spec.ProviderID != in.ProviderID {
			continue
		}
		requested := node.Annotations[v1beta1.NodeAnnotationUpdateRequested]
		result, answered := node.Annotations[v1beta1.NodeAnnotationUpdateResult]
		switch {
		case in.answer != "":
			out = append(out, choice{"agent on " + node.Name + " answers", func() error { return w.answer(in, node) }})
		case in.working != "":
			out = append(out, choice{"agent on " + node.Name + " is through", func() error { return w.through(in, node) }})
		case requested != "" && !answered:
			out = append(out, choice{"agent on " + node.Name + " begins", func() error {
				w.logf("agent on %s begins with %s", node.Name, requested)
				if !node.Spec.Unschedulable {
					w.oracle.breach("agent", "the agent on node %s begins with %s before the node was drained", node.Name, requested)
				}
				in.working = requested
				return nil
			}})
		case requested != "" && result != v1beta1.UpdateResultSucceeded:
			out = append(out, choice{"person has the agent on " + node.Name + " try again", func() error {
				return w.tryAgain(node)
			}})
		}
	}
	return out
}

// through ends the work of an agent. Its kubelet starts anew, and the agent may report it before or after that is
// Ready.
func (w *World) through(in *instance, node *corev1.Node) error {
	in.worked, in.working, in.answer = in.working, "", v1beta1.UpdateResultSucceeded
	if w.agentFailures < mostFailures && w.random.IntN(5) == 0 {
		w.agentFailures++
		in.answer = v1beta1.UpdateResultFailed + ": out of luck"
		w.logf("agent on %s fails with %s", node.Name, in.worked)
		return nil
	}
	in.kubelet = in.worked
	w.logf("agent on %s is through with %s", node.Name, in.worked)
	return w.setReady(node, corev1.ConditionFalse)
}

// answer writes what an agent has to say, unless it was asked for something else meanwhile: this it tests in the same
// patch.
func (w *World) answer(in *instance, node *corev1.Node) error {
	answer := in.answer
	in.answer = ""
	if node.Annotations[v1beta1.NodeAnnotationUpdateRequested] != in.worked {
		w.logf("agent on %s has nobody to answer", node.Name)
		return nil
	}
	w.logf("agent on %s: %s", node.Name, answer)
	changed := node.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1beta1.NodeAnnotationUpdateResult, answer)
	return w.target.Client("agent").Patch(context.Background(), changed, client.MergeFrom(node))
}

// tryAgain takes one of the annotations off a Node whose agent failed.
func (w *World) tryAgain(node *corev1.Node) error {
	w.disturbed = w.clock.at
	changed := node.DeepCopy()
	key := []string{v1beta1.NodeAnnotationUpdateRequested, v1beta1.NodeAnnotationUpdateResult}[w.random.IntN(2)]
	delete(changed.Annotations, key)
	w.logf("person takes %s off node %s", key, node.Name)
	return w.hand(w.target).Patch(context.Background(), changed, client.MergeFrom(node))
}

// kubeletOf is the version of the kubelet on a Node.
func (w *World) kubeletOf(node *corev1.Node) string {
	if in := w.cloud.byID(node.Spec.ProviderID); in != nil && in.kubelet != "" {
		return in.kubelet
	}
	if node.Status.NodeInfo.KubeletVersion != "" {
		return node.Status.NodeInfo.KubeletVersion
	}
	return firstVersion
}

// mayCallUpToDate is the rule of agents: a machine is what it must be only when its kubelet is, and nothing runs to
// change that.
func (o *oracle) mayCallUpToDate(c apiserver.Change, m *v1beta1.Machine) {
	if c.Actor != Provider || m.Spec.Version == "" || !m.DeletionTimestamp.IsZero() || m.Status.Applied == nil ||
		m.Status.Applied.Version != m.Spec.Version {
		return
	}
	updated := findCondition(m, v1beta1.ConditionUpToDate)
	in := o.world.cloud.byID(m.Spec.ProviderID)
	if in == nil || in.kubelet == "" || updated == nil || updated.Status != metav1.ConditionTrue ||
		updated.ObservedGeneration != m.Generation {
		return
	}
	if in.kubelet != m.Spec.Version || in.working != "" {
		o.breach("agent", "machine %s is said to be up to date with %s, its kubelet is of %s, and its agent works at %q",
			m.Name, m.Spec.Version, in.kubelet, in.working)
	}
}

// wrongVersion says which version a machine has that is not the one that was asked for: that of the kubelet where an
// agent changes it, else that of the instance. It is "" if the version is right.
func (w *World) wrongVersion(m *v1beta1.Machine) string {
	in := w.cloud.byID(m.Spec.ProviderID)
	switch {
	case in == nil:
		return ""
	case in.kubelet == "":
		return otherThan(in.version, m.Spec.Version)
	case in.working != "":
		return in.kubelet
	}
	return otherThan(in.kubelet, m.Spec.Version)
}

// otherThan returns what there is if it is not what is wanted, else "".
func otherThan(is, wanted string) string {
	if is == wanted {
		return ""
	}
	return cmp.Or(is, "no version")
}
