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

// This file simulates agents on nodes. An agent updates the software of its node to the requested version. An update
// takes some time and sometimes fails. The cloud does not know about the update. Only machines of agentClass have
// agents.

const (
	// agentClass is the class of machines with agents. The kubelets of these machines start with firstVersion.
	agentClass   = "with-agent"
	firstVersion = "v1.36.3"
	mostFailures = 2
)

type agent struct {
	kubelet string
	// working is the version to which the agent is currently updating the node. If no update is in progress, working
	// is empty. answer is the result of the last update until the agent has reported it. lastVersion is the version
	// of the last update.
	working, lastVersion, answer string
}

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

// thenUpdate returns actions that change the version twice. The second change happens while agents still install the
// first version, or right after an agent has reported its result.
func thenUpdate(version string) func(*rand.Rand) []Action {
	return func(r *rand.Rand) []Action {
		next := upgrade(version)
		if r.IntN(2) == 0 {
			next = next.waitFor("an agent has a request", func(w *World) bool {
				return w.anyNodeHas(v1beta1.NodeAnnotationUpdateRequested) || w.settledWith("v1.36.4")
			})
		} else {
			next = next.waitFor("an agent has reported a result", func(w *World) bool {
				return w.anyNodeHas(v1beta1.NodeAnnotationUpdateResult) || w.settledWith("v1.36.4")
			})
		}
		return []Action{upgrade("v1.36.4"), next}
	}
}

func (w *World) anyNodeHas(key string) bool {
	return slices.ContainsFunc(w.target.Snapshot(nodeKind), func(o client.Object) bool {
		_, has := o.GetAnnotations()[key]
		return has
	})
}

func (w *World) settledWith(version string) bool {
	return !slices.ContainsFunc(w.cloud.instances, func(in *instance) bool {
		return in.kubelet != version || in.answer != ""
	})
}

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
			out = append(out, choice{"agent on " + node.Name + " reports its result", func() error {
				return w.answer(in, node)
			}})
		case in.working != "":
			out = append(out, choice{"agent on " + node.Name + " finishes", func() error { return w.finishUpdate(in, node) }})
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
			out = append(out, choice{"person retries the agent on " + node.Name, func() error {
				return w.tryAgain(node)
			}})
		}
	}
	return out
}

// finishUpdate completes an agent's update and restarts the kubelet. The agent may report its result before or after
// the kubelet is Ready again.
func (w *World) finishUpdate(in *instance, node *corev1.Node) error {
	in.lastVersion, in.working, in.answer = in.working, "", v1beta1.UpdateResultSucceeded
	if w.agentFailures < mostFailures && w.random.IntN(5) == 0 {
		w.agentFailures++
		in.answer = v1beta1.UpdateResultFailed + ": random failure"
		w.logf("agent on %s fails with %s", node.Name, in.lastVersion)
		return nil
	}
	in.kubelet = in.lastVersion
	w.logf("agent on %s has finished %s", node.Name, in.lastVersion)
	return w.setReady(node, corev1.ConditionFalse)
}

// answer reports the result of the agent's update in the Node. A test operation in the patch prevents this if another
// version was requested during the update.
func (w *World) answer(in *instance, node *corev1.Node) error {
	answer := in.answer
	in.answer = ""
	if node.Annotations[v1beta1.NodeAnnotationUpdateRequested] != in.lastVersion {
		w.logf("agent on %s does not report: the request has changed", node.Name)
		return nil
	}
	w.logf("agent on %s: %s", node.Name, answer)
	changed := node.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1beta1.NodeAnnotationUpdateResult, answer)
	return w.target.Client("agent").Patch(context.Background(), changed, client.MergeFrom(node))
}

// tryAgain removes an annotation from a Node after a failed update, so that the agent tries again.
func (w *World) tryAgain(node *corev1.Node) error {
	w.disturbed = w.clock.at
	changed := node.DeepCopy()
	key := []string{v1beta1.NodeAnnotationUpdateRequested, v1beta1.NodeAnnotationUpdateResult}[w.random.IntN(2)]
	delete(changed.Annotations, key)
	w.logf("person removes %s from node %s", key, node.Name)
	return w.hand(w.target).Patch(context.Background(), changed, client.MergeFrom(node))
}

func (w *World) kubeletOf(node *corev1.Node) string {
	if in := w.cloud.byID(node.Spec.ProviderID); in != nil && in.kubelet != "" {
		return in.kubelet
	}
	if node.Status.NodeInfo.KubeletVersion != "" {
		return node.Status.NodeInfo.KubeletVersion
	}
	return firstVersion
}

// mayCallUpToDate checks the machines with an agent that are reported as up to date. The kubelet of such a machine must
// have the requested version, and no update may be in progress.
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
		o.breach("agent", "machine %s is UpToDate with %s, but its kubelet has %s and its agent works on %q",
			m.Name, m.Spec.Version, in.kubelet, in.working)
	}
}

// wrongVersion returns the version of a machine if it is not the requested one, or "". With an agent, the version is
// that of the kubelet, and otherwise that of the instance.
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

func otherThan(is, wanted string) string {
	if is == wanted {
		return ""
	}
	return cmp.Or(is, "no version")
}
