package simulation

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/test/controllermanager"
)

// This file simulates the workloads on the nodes, the controllers that create pods, a scheduler and the kubelets. Their
// whole state is in the target cluster.

// app is a workload: the pods of one controller.
type app struct {
	name string
	kind appKind
	// replicas is the number of pods. A single node has enough space for all of them.
	replicas int
	// minAvailable is the value of minAvailable in the PodDisruptionBudget of the pods. If minAvailable is 0, there
	// is no PodDisruptionBudget.
	minAvailable int
	// grace is the termination grace period in seconds. A slow pod uses its whole grace period.
	grace int64
	slow  bool
	// If volume is set, each pod has a volume, which is attached to the pod's node. If staysAttached is true, the
	// kubelet never unmounts the volumes of the pods.
	volume, staysAttached bool
	// If claims is set, the pods of a StatefulSet use their volumes through PersistentVolumeClaims.
	claims   bool
	critical bool
	// runs is the number of seconds after which a pod of a Job ends.
	runs int
	// drainLabel is the value of the label with which the owner of the pods chooses how drains treat them.
	drainLabel string
	// If spreadsPods is set, the first pods are created only when each pod can have its own schedulable node.
	spreadsPods bool
	pinned
}

type appKind string

// A ReplicaSet replaces a pod under another name as soon as it terminates. A StatefulSet waits until the pod is
// deleted, and keeps the name and the volume. DaemonSet pods and static pods run on every node. The pods of a Job end
// soon after they have started.
const (
	ReplicaSet  appKind = "ReplicaSet"
	StatefulSet appKind = "StatefulSet"
	DaemonSet   appKind = "DaemonSet"
	Static      appKind = "Node"
	Job         appKind = "Job"
)

const workloads = "apps"

var (
	podKind        = corev1.SchemeGroupVersion.WithKind("Pod")
	attachmentKind = storagev1.SchemeGroupVersion.WithKind("VolumeAttachment")
)

func (w *World) deploy(apps []app) error {
	w.apps = apps
	c := w.hand(w.target)
	for _, a := range apps {
		if a.volume && w.volumes == nil {
			w.volumes = &controllermanager.Volumes{NamesOf: w.volumesOf}
		}
		meta := metav1.ObjectMeta{Namespace: workloads, Name: a.name}
		if a.claims {
			if err := createClaims(c, a); err != nil {
				return err
			}
		}
		if a.kind == DaemonSet {
			if err := c.Create(context.Background(), &appsv1.DaemonSet{ObjectMeta: meta}); err != nil {
				return err
			}
		}
		if a.minAvailable == 0 {
			continue
		}
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: meta}
		budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": a.name}}
		budget.Spec.MinAvailable = ptr.To(intstr.FromInt(a.minAvailable))
		if err := c.Create(context.Background(), budget); err != nil {
			return err
		}
	}
	return nil
}

func (w *World) workload() (out []choice) {
	if len(w.apps) == 0 {
		return nil
	}
	pods := w.podsWhere(func(*corev1.Pod) bool { return true })
	for _, a := range w.apps {
		for _, p := range w.podsToCreate(a, pods) {
			out = append(out, choice{"a controller creates a pod", func() error {
				w.logf("%s %s creates a pod on %s", a.kind, a.name, p.Spec.NodeName)
				return w.target.Client("controllers").Create(context.Background(), p)
			}})
		}
	}
	for _, p := range pods {
		if what, do := w.nextPodStep(p); do != nil {
			out = append(out, choice{what + " " + p.Name, func() error { w.logf("%s pod %s", what, p.Name); return do() }})
		}
	}
	return append(out, w.storage()...)
}

func (w *World) podsWhere(f func(*corev1.Pod) bool) (found []*corev1.Pod) {
	for _, o := range w.target.Snapshot(podKind) {
		if p := o.(*corev1.Pod); f(p) {
			found = append(found, p)
		}
	}
	return found
}

func (w *World) appOf(p *corev1.Pod) app {
	i := slices.IndexFunc(w.apps, func(a app) bool { return a.name == p.Labels["app"] })
	return w.apps[i]
}

func ended(p *corev1.Pod) bool { return controllermanager.HasEnded(p) }

// podsToCreate returns the pods that the controller of an app would create now, on the nodes that a scheduler selects.
func (w *World) podsToCreate(a app, pods []*corev1.Pod) (out []*corev1.Pod) {
	if a.spreadsPods && !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Labels["app"] == a.name }) {
		free, pod := 0, w.podOf(a, "", "")
		for _, o := range w.target.Snapshot(nodeKind) {
			if controllermanager.Schedulable(pod, o.(*corev1.Node)) {
				free++
			}
		}
		if free < min(a.replicas, w.liveMachines()) {
			return nil
		}
	}
	if a.pinned != unpinned {
		return w.pinnedPodsToCreate(a, pods)
	}
	if a.kind != Static {
		return a.withClaims(w.manager().Missing(controllermanager.Workload{Kind: string(a.kind), Namespace: workloads,
			Name: a.name, Replicas: a.replicas, Pod: w.podOf(a, "", "")}))
	}
	for _, o := range w.target.Snapshot(nodeKind) {
		p := w.podOf(a, a.name+"-"+o.GetName(), o.GetName())
		if w.kubeletOn(o.GetName()) != nil && !slices.ContainsFunc(pods, func(known *corev1.Pod) bool {
			return known.Name == p.Name
		}) {
			out = append(out, p)
		}
	}
	return out
}

func (w *World) podOf(a app, name, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: workloads, Name: name,
		Labels: map[string]string{"app": a.name}}}
	p.Spec.NodeName, p.Spec.TerminationGracePeriodSeconds = node, &a.grace
	// An emptyDir volume is deleted with its pod, so it must not prevent an eviction.
	p.Spec.Volumes = []corev1.Volume{{Name: "scratch",
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	if a.drainLabel != "" {
		p.Labels[drainLabel] = a.drainLabel
	}
	if a.critical {
		p.Spec.PriorityClassName = "system-cluster-critical"
	}
	owner := metav1.OwnerReference{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: string(a.kind), Name: a.name,
		Controller: ptr.To(true)}
	switch a.kind {
	case DaemonSet:
		for _, o := range w.target.Snapshot(appsv1.SchemeGroupVersion.WithKind("DaemonSet")) {
			if o.GetName() == a.name {
				owner.UID = o.GetUID()
			}
		}
	case Static:
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "static"}
		owner.APIVersion, owner.Name, owner.UID = "v1", node, w.node(node).UID
	default:
		owner.UID = uid("uid-of-" + a.name)
	}
	p.OwnerReferences = []metav1.OwnerReference{owner}
	p.Spec.Tolerations = tolerations(a.kind)
	switch a.pinned {
	case byToleration:
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	case byName:
		// The default of the API server. With a shorter time, pods on silent nodes would be evicted all the time.
		p.Spec.Tolerations[0].TolerationSeconds = ptr.To[int64](300)
	}
	return p
}

// tolerations returns the tolerations of pods that the DaemonSet controller or a kubelet creates. All other pods are
// evicted from an unreachable node immediately.
func tolerations(kind appKind) (all []corev1.Toleration) {
	exists := func(key string, effect corev1.TaintEffect) {
		all = append(all, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect})
	}
	switch kind {
	case Static:
		exists("", corev1.TaintEffectNoExecute)
	case DaemonSet:
		return controllermanager.DaemonTolerations()
	default:
		exists(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
		all[0].TolerationSeconds = ptr.To[int64](0)
	}
	return all
}

func (w *World) kubeletOn(name string) *instance {
	node := w.node(name)
	if node == nil {
		return nil
	}
	if in := w.cloud.byID(node.Spec.ProviderID); in != nil && in.registered && !in.hung && in.State == "Running" {
		return in
	}
	return nil
}

func (w *World) nextPodStep(p *corev1.Pod) (what string, do func() error) {
	node, kubelet, a := w.node(p.Spec.NodeName), w.kubeletOn(p.Spec.NodeName), w.appOf(p)
	dying := !p.DeletionTimestamp.IsZero()
	switch {
	case kubelet == nil:
		return "", nil // Without a kubelet, only other controllers act on the pod.
	case dying && ended(p):
		return "kubelet removes", func() error {
			return w.kubelet().Delete(context.Background(), p.DeepCopy(), client.GracePeriodSeconds(0),
				client.Preconditions{UID: &p.UID})
		}
	case dying && (!a.slow || p.Status.Phase == corev1.PodPending || !w.clock.at.Before(p.DeletionTimestamp.Time)):
		return "kubelet stops", func() error { return w.setPodReady(p, corev1.PodFailed, corev1.ConditionFalse) }
	case dying:
	case a.kind == Job && p.Status.Phase == corev1.PodRunning && !w.clock.at.Before(a.endOf(p)):
		return "kubelet reports the end of", func() error { return w.setPodReady(p, corev1.PodSucceeded, corev1.ConditionFalse) }
	case p.Status.Phase == corev1.PodPending && w.mountable(p, node):
		return "kubelet starts", func() error { return w.run(p, a) }
	case p.Status.Phase == corev1.PodRunning && !isReady(p) && readiness(node) == corev1.ConditionTrue:
		return "kubelet sets to ready", func() error { return w.setPodReady(p, corev1.PodRunning, corev1.ConditionTrue) }
	}
	return "", nil
}

func (w *World) podsDue() (at time.Time, any bool) {
	if len(w.apps) == 0 {
		return at, false
	}
	for _, o := range w.target.Snapshot(podKind) {
		p := o.(*corev1.Pod)
		if t := p.DeletionTimestamp; t != nil && t.After(w.clock.at) && w.kubeletOn(p.Spec.NodeName) != nil &&
			(!any || t.Time.Before(at)) {
			at, any = t.Time, true
		}
		if a := w.appOf(p); a.kind == Job && p.Status.Phase == corev1.PodRunning && a.endOf(p).After(w.clock.at) &&
			w.kubeletOn(p.Spec.NodeName) != nil && (!any || a.endOf(p).Before(at)) {
			at, any = a.endOf(p), true
		}
	}
	return at, any
}

func (w *World) run(p *corev1.Pod, a app) error {
	if a.kind == Job && a.runs == 0 {
		return w.setPodReady(p, corev1.PodSucceeded, corev1.ConditionFalse)
	}
	return w.setPodReady(p, corev1.PodRunning, corev1.ConditionTrue)
}

// endOf returns the time at which a pod of a Job ends.
func (a app) endOf(p *corev1.Pod) time.Time {
	return p.CreationTimestamp.Add(time.Duration(a.runs) * time.Second)
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// setPodReady updates the status of a pod as a kubelet does, and keeps the conditions of others.
func (w *World) setPodReady(p *corev1.Pod, phase corev1.PodPhase, status corev1.ConditionStatus) error {
	changed := p.DeepCopy()
	changed.Status.Phase = phase
	container := corev1.ContainerStatus{Name: "c"}
	if phase == corev1.PodRunning {
		container.State.Running = &corev1.ContainerStateRunning{}
	} else {
		container.State.Terminated = &corev1.ContainerStateTerminated{}
	}
	changed.Status.ContainerStatuses = []corev1.ContainerStatus{container}
	changed.Status.Conditions = append(slices.DeleteFunc(changed.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady
	}), corev1.PodCondition{Type: corev1.PodReady, Status: status})
	return client.IgnoreNotFound(w.kubelet().Status().Patch(context.Background(), changed, client.MergeFrom(p)))
}

func (w *World) unsettledPods() (missing []string) {
	report := func(format string, args ...any) { missing = append(missing, fmt.Sprintf(format, args...)) }
	nodes := len(w.target.Snapshot(nodeKind))
	for _, a := range w.apps {
		wanted := a.replicas
		if a.kind == DaemonSet || a.kind == Static || nodes == 0 {
			wanted = nodes
		}
		running := w.podsWhere(func(p *corev1.Pod) bool {
			return p.Labels["app"] == a.name && p.DeletionTimestamp.IsZero() &&
				(a.kind == Job || isReady(p) && !ended(p)) && w.node(p.Spec.NodeName) != nil
		})
		if len(running) != wanted {
			report("app %s has %d running pods, want %d", a.name, len(running), wanted)
		}
	}
	if at, ends := w.podsDue(); ends {
		report("a pod has a grace period or runs until %s", at.Sub(epoch))
	}
	for _, o := range w.target.Snapshot(attachmentKind) {
		if va := o.(*storagev1.VolumeAttachment); w.node(va.Spec.NodeName) == nil {
			report("volume %s is attached to a node that is gone", *va.Spec.Source.PersistentVolumeName)
		}
	}
	return missing
}
