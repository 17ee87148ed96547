package drain_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/drain"
)

func ofApp(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels["app"] = name }
}

func rule(app string, behavior v1beta1.DrainBehavior, order int32) v1beta1.DrainRule {
	return v1beta1.DrainRule{Name: app, Behavior: behavior, Order: order,
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}
}

func (c *cluster) isRunning(p *corev1.Pod) bool {
	now := c.podNow(p)
	return now != nil && now.DeletionTimestamp.IsZero()
}

// Rules: drain-rules-decide, drain-rules-order.
func TestRulesDecideAboutEvictions(t *testing.T) {
	c := newCluster(t)
	node := c.node("a")
	web, job, db := c.pod(node, "web"), c.pod(node, "job", ofApp("job")), c.pod(node, "db", ofApp("db"))
	agent := c.pod(node, "agent", ofApp("agent"))
	jobs := rule("job", v1beta1.DrainBehaviorWaitCompleted, 0)
	jobs.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: c.namespace}}
	elsewhere := rule("web", v1beta1.DrainBehaviorSkip, 0)
	elsewhere.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "other"}}
	drains := c.startDrains(drain.Options{})
	machine := drains.requestDrain(node, time.Hour, func(r *drain.Request) {
		r.Policy = &v1beta1.MachineDrain{Rules: []v1beta1.DrainRule{jobs, elsewhere,
			rule("agent", v1beta1.DrainBehaviorSkip, 0), rule("db", v1beta1.DrainBehaviorDrain, 10)}}
	})
	o := drains.awaitOne(machine, "the drain to wait for the job", func(o drain.Outcome) bool {
		return o.Reason == v1beta1.ReasonWaitingForCompletion
	})
	if want := c.namespace + "/job (waits for the pod to complete: rule job)"; !strings.Contains(o.Message, want) {
		t.Errorf("the message %q does not contain %q", o.Message, want)
	}
	if c.isRunning(web) || !c.isRunning(job) || !c.isRunning(db) || !c.isRunning(agent) {
		t.Errorf("running: web %t, job %t, db %t, agent %t", c.isRunning(web), c.isRunning(job), c.isRunning(db), c.isRunning(agent))
	}
	before := job.DeepCopy()
	job.Status.Phase = corev1.PodSucceeded
	if err := c.Status().Patch(context.Background(), job, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	o = drains.awaitOne(machine, "the drain", isDone)
	if want := c.namespace + "/agent (skipped because of rule agent)"; !strings.Contains(o.Message, want) {
		t.Errorf("the message %q does not contain %q", o.Message, want)
	}
	if c.podNow(db) != nil || !c.isRunning(agent) || c.podNow(job) == nil {
		t.Errorf("after the drain: db exists %t, agent runs %t, job exists %t", c.podNow(db) != nil, c.isRunning(agent),
			c.podNow(job) != nil)
	}
}

// Rule: completion-bounded-by-deadline.
func TestPodThatMustCompleteIsDeletedAtTheDeadline(t *testing.T) {
	c := newCluster(t)
	node := c.node("a")
	job := c.pod(node, "job", ofApp("job"), withGrace(1))
	drains := c.startDrains(drain.Options{})
	start := time.Now()
	machine := drains.requestDrain(node, 4*time.Second, func(r *drain.Request) {
		r.Policy = &v1beta1.MachineDrain{Rules: []v1beta1.DrainRule{rule("job", v1beta1.DrainBehaviorWaitCompleted, 0)}}
	})
	drains.awaitOne(machine, "the drain", isDone)
	if took := time.Since(start); c.podNow(job) != nil || took < 3*time.Second {
		t.Errorf("after %s, the pod exists: %t; want it deleted after 3s", took, c.podNow(job) != nil)
	}
}

// Rule: volume-pods-one-at-a-time.
func TestVolumesDelayTheNextEviction(t *testing.T) {
	c := newCluster(t)
	node := c.node("a")
	withData := func(name string) func(*corev1.Pod) {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: c.meta(name)}
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		claim.Spec.VolumeName, claim.Spec.StorageClassName = c.namespace+"-"+name, ptr.To("none")
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		c.create(claim)
		return func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
		}
	}
	one, two := c.pod(node, "db-1", withData("db-1")), c.pod(node, "db-2", withData("db-2"))
	var attached []*storagev1.VolumeAttachment
	for _, p := range []*corev1.Pod{one, two} {
		va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: c.namespace + "-" + p.Name}}
		va.Spec = storagev1.VolumeAttachmentSpec{Attacher: "test", NodeName: node.Name,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(c.namespace + "-" + p.Name)}}
		c.create(va)
		attached = append(attached, va)
	}
	drains := c.startDrains(drain.Options{})
	machine := drains.requestDrain(node, time.Hour, func(r *drain.Request) {
		r.Policy, r.VolumeDetachTimeout = &v1beta1.MachineDrain{PodsWithVolumes: v1beta1.VolumePodsOneAtATime}, time.Hour
	})
	await(c, "the first pod to be gone", &corev1.PodList{}, func(l *corev1.PodList) (bool, string) {
		return len(l.Items) == 1, "both exist"
	})
	// The same pass decides about a new pod and about the second pod with a volume.
	web := c.pod(node, "web")
	await(c, "the new pod to be gone", &corev1.PodList{}, func(*corev1.PodList) (bool, string) {
		return c.podNow(web) == nil, "it exists"
	})
	if !c.isRunning(two) {
		t.Error("the second pod is evicted while the volume of the first is attached")
	}
	c.remove(attached[0])
	drains.awaitOne(machine, "the drain", isDone)
	if c.podNow(two) != nil {
		t.Error("the second pod is left")
	}
}
