package simulation

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/controllermanager"
)

// This file simulates kubelets. The simulation has no separate object for a kubelet: the instance contains the state of
// its kubelet. A scheduler chooses the next step of the world, and so decides when a kubelet acts.

func (w *World) kubelets() []choice {
	var out []choice
	for _, c := range w.manager().Choices() {
		out = append(out, choice{c.Name, func() error { w.logf("%s", c.Name); return c.Do() }})
	}
	for _, in := range w.cloud.instances {
		node := w.node(in.NodeName)
		mine := node != nil && w.hostOf(node) == in
		if mine && node.Spec.ProviderID == "" {
			out = append(out, choice{"the cloud controller sets the ID of node " + node.Name, func() error {
				return w.setProviderID(node, w.cloud.troubles.idOn(node, in))
			}})
		}
		switch {
		case in.hung, !in.registered && in.hasImage(w.cloud.troubles.silentImage):
		case in.registered && mine && in.hasImage(w.cloud.troubles.flappingImage):
			if do := w.flaps(in, node); do != nil {
				out = append(out, choice{"a condition of node " + node.Name + " changes", do})
			}
		case w.runsOn(in) && !in.registered && node == nil && w.mayRegister(in):
			out = append(out, choice{"kubelet of " + in.ProviderID + " registers", func() error { return w.register(in) }})
		case in.State == provider.StateRunning && mine && !w.neverReady(in) && (readiness(node) != corev1.ConditionTrue ||
			in.boots > 0 && node.Status.NodeInfo.BootID != in.bootID()):
			out = append(out, choice{"kubelet of " + in.ProviderID + " is ready", func() error {
				return w.setReady(node, corev1.ConditionTrue)
			}})
		}
	}
	for _, o := range w.target.Snapshot(nodeKind) {
		node := o.(*corev1.Node)
		in := w.hostOf(node)
		// Without a provider ID and a token, no other controller can find the machine of a Node.
		if in == nil && node.Spec.ProviderID == "" && w.safety.optionalReconcilers == CloudController {
			out = append(out, choice{"the cloud controller deletes node " + node.Name, func() error {
				return client.IgnoreNotFound(w.target.Client("cloud-controller").Delete(context.Background(), node))
			}})
		}
	}
	out = append(out, w.agents()...)
	out = append(out, w.workload()...)
	return append(out, w.selecting()...)
}

var nodeKind = corev1.SchemeGroupVersion.WithKind("Node")

func (w *World) node(name string) *corev1.Node {
	for _, o := range w.target.Snapshot(nodeKind) {
		if o.GetName() == name {
			return o.(*corev1.Node)
		}
	}
	return nil
}

// hostOf returns the instance of a Node, even without a provider ID. hostOf returns nil if the instance is gone.
func (w *World) hostOf(node *corev1.Node) *instance {
	if node.Spec.ProviderID != "" && !ofDistribution(node) {
		return w.cloud.byID(node.Spec.ProviderID)
	}
	for _, in := range w.cloud.instances {
		if in.registered && in.NodeName == node.Name {
			return in
		}
	}
	return nil
}

func (w *World) setProviderID(node *corev1.Node, id string) error {
	changed := node.DeepCopy()
	changed.Spec.ProviderID = id
	return client.IgnoreNotFound(w.target.Client("cloud-controller").Patch(context.Background(), changed,
		client.MergeFrom(node)))
}

func readiness(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// tokenGood reports whether the instance's bootstrap token permits it to join. An instance that received no token can
// always join.
func (w *World) tokenGood(in *instance) bool {
	text, given := strings.CutPrefix(in.bootstrapToken, "token=")
	if !given {
		return true
	}
	id, secret, _ := strings.Cut(text, ".")
	o := &corev1.Secret{}
	err := w.hand(w.target).Get(context.Background(), client.ObjectKey{Namespace: metav1.NamespaceSystem,
		Name: "bootstrap-token-" + id}, o)
	if err != nil || string(o.Data["token-secret"]) != secret {
		return false
	}
	expires, err := time.Parse(time.RFC3339, string(o.Data["expiration"]))
	return err == nil && w.clock.at.Before(expires)
}

func (w *World) register(in *instance) error {
	in.registered = true
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: in.NodeName,
		Labels:      map[string]string{corev1.LabelHostname: in.NodeName},
		Annotations: map[string]string{controllermanager.AnnotationManaged: "true"}}}
	if !w.safety.optionalReconcilers.has(CloudController) {
		node.Spec.ProviderID = in.ProviderID
	}
	if in.legacy.machine == "" {
		node.Spec.Taints = []corev1.Taint{{Key: v1beta1.NodeTaintUninitialized, Effect: corev1.TaintEffectNoSchedule}}
	}
	w.report(node, corev1.ConditionFalse)
	return w.kubelet().Create(context.Background(), node)
}

func (w *World) setReady(node *corev1.Node, status corev1.ConditionStatus) error {
	changed := node.DeepCopy()
	w.report(changed, status)
	return client.IgnoreNotFound(w.kubelet().Status().Patch(context.Background(), changed, client.MergeFrom(node)))
}

func (w *World) report(node *corev1.Node, ready corev1.ConditionStatus) {
	now := metav1.NewTime(w.clock.at.Truncate(time.Second))
	node.Status.Conditions = nil
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
		corev1.NodePIDPressure, corev1.NodeReady} {
		c := corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, LastTransitionTime: now, LastHeartbeatTime: now}
		if kind == corev1.NodeReady {
			c.Status = ready
		}
		node.Status.Conditions = append(node.Status.Conditions, c)
	}
	node.Status.Conditions = append(node.Status.Conditions, w.networkCondition(ready))
	node.Status.NodeInfo.KubeletVersion = w.kubeletOf(node)
	if in := w.hostOf(node); in != nil {
		node.Status.NodeInfo.BootID = in.bootID()
	}
}

// manager is the target cluster's kube-controller-manager and receives no reports from a kubelet that hangs or whose
// instance is stopped or gone.
func (w *World) manager() controllermanager.Manager {
	silent := func(node *corev1.Node) bool {
		in := w.hostOf(node)
		return in == nil || in.hung || in.State == provider.StateStopped
	}
	return controllermanager.Manager{Server: w.target, Now: w.clock.Now, Volumes: w.volumes, IsSilent: silent}
}
