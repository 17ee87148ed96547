package drain_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/drain"
)

// deployment creates a Deployment with one replica, waits for its pod, and runs the pod on the node. A budget never
// allows its eviction.
func (c *cluster) deployment(node *corev1.Node, edits ...func(*appsv1.Deployment)) (*appsv1.Deployment, *corev1.Pod) {
	c.Helper()
	labels := map[string]string{"app": "web"}
	one := int32(1)
	d := &appsv1.Deployment{ObjectMeta: c.meta("web"), Spec: appsv1.DeploymentSpec{
		Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}},
	}}
	for _, edit := range edits {
		edit(d)
	}
	c.create(d)
	pod := c.awaitNewPod()
	c.run(pod, node)
	c.budget("web", func(b *policyv1.PodDisruptionBudget) {
		minimum := intstr.FromInt32(1)
		b.Spec.MinAvailable = &minimum
	}, false)
	return d, pod
}

// awaitNewPod waits for a pod without a Node.
func (c *cluster) awaitNewPod() (pod *corev1.Pod) {
	c.Helper()
	await(c, "a new pod of the Deployment", &corev1.PodList{}, func(l *corev1.PodList) (bool, string) {
		for i := range l.Items {
			if l.Items[i].Spec.NodeName == "" {
				pod = &l.Items[i]
			}
		}
		return pod != nil, fmt.Sprintf("%d pods", len(l.Items))
	})
	return pod
}

// run assigns a pod to a Node and makes it Ready, as the scheduler and the kubelet do.
func (c *cluster) run(pod *corev1.Pod, node *corev1.Node) {
	c.Helper()
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}
	if err := c.SubResource("binding").Create(context.Background(), pod, binding); err != nil {
		c.Fatal(err)
	}
	ready := c.podNow(pod)
	before := ready.DeepCopy()
	ready.Status.Phase = corev1.PodRunning
	ready.Status.Conditions = append(ready.Status.Conditions,
		corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	if err := c.Status().Patch(context.Background(), ready, client.MergeFrom(before)); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) generationOf(d *appsv1.Deployment) int64 {
	c.Helper()
	if err := c.Get(context.Background(), client.ObjectKeyFromObject(d), d); err != nil {
		c.Fatal(err)
	}
	return d.Generation
}

func (c *cluster) change(d *appsv1.Deployment, edit func(*appsv1.Deployment)) {
	c.Helper()
	before := d.DeepCopy()
	edit(d)
	if err := c.Patch(context.Background(), d, client.MergeFrom(before)); err != nil {
		c.Fatal(err)
	}
}

func restart(r *drain.Request) {
	r.Policy = &v1beta1.MachineDrain{SingleReplicas: v1beta1.SingleReplicasRestart}
}

func mentions(text string) func(drain.Outcome) bool {
	return func(o drain.Outcome) bool { return strings.Contains(o.Message, text) }
}

// The controllers of Kubernetes replace the pod. The drain restarts the Deployment once, although the API server
// refuses the eviction again and again.
//
// Rule: single-replica-restart.
func TestDrainRestartsDeploymentWithOneReplica(t *testing.T) {
	c := newCluster(t)
	node, other := c.node("a"), c.node("b")
	d, old := c.deployment(node)
	before := c.generationOf(d)
	refusals := make(chan struct{}, 100)
	evict, err := drain.EvictWith(c.config, nil)
	if err != nil {
		t.Fatal(err)
	}
	drains := c.startDrains(drain.Options{Evict: func(ctx context.Context, e *policyv1.Eviction) error {
		err := evict(ctx, e)
		refusals <- struct{}{}
		return err
	}})
	machine := drains.requestDrain(node, time.Hour, restart)
	drains.awaitOne(machine, "the restart", mentions("restarted Deployment web, whose new pod must be available first"))
	successor := c.awaitNewPod()
	for range 2 { // The first refusal restarted the Deployment.
		<-refusals
	}
	if !c.isRunning(old) {
		t.Error("the old pod ended before the new one was available")
	}
	c.run(successor, other)
	drains.awaitOne(machine, "the drain", isDone)
	if after := c.generationOf(d); after != before+1 {
		t.Errorf("the Deployment was changed %d times, want once", after-before)
	}
	if !c.isRunning(successor) {
		t.Error("the new pod does not run")
	}
}

// Rule: single-replica-restart.
func TestOnlyProtectedSingleReplicasAreRestarted(t *testing.T) {
	tolerations := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	for name, tc := range map[string]struct {
		edit    func(*appsv1.Deployment)
		then    func(*appsv1.Deployment) // a change when the pod runs
		request func(*drain.Request)
	}{
		"not requested": {request: func(*drain.Request) {}},
		"recreated":     {edit: func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType }},
		"without surge": {edit: func(d *appsv1.Deployment) {
			none, one := intstr.FromInt32(0), intstr.FromInt32(1)
			d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: &none, MaxUnavailable: &one}
		}},
		"paused":               {then: func(d *appsv1.Deployment) { d.Spec.Paused = true }},
		"tolerates the cordon": {edit: func(d *appsv1.Deployment) { d.Spec.Template.Spec.Tolerations = tolerations }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			node := c.node("a")
			if tc.edit == nil {
				tc.edit = func(*appsv1.Deployment) {}
			}
			if tc.request == nil {
				tc.request = restart
			}
			d, _ := c.deployment(node, tc.edit)
			if tc.then != nil {
				c.change(d, tc.then)
			}
			before := c.generationOf(d)
			drains := c.startDrains(drain.Options{})
			machine := drains.requestDrain(node, time.Hour, tc.request)
			o := drains.awaitOne(machine, "the refusal", func(o drain.Outcome) bool { return len(o.Blockers) > 0 })
			if after := c.generationOf(d); after != before || mentions("restart")(o) {
				t.Errorf("the generation is %d, was %d: %s", after, before, o.Message)
			}
		})
	}
}

// A pod of an earlier ReplicaSet is replaced by the rollout in progress.
//
// Rule: single-replica-restart.
func TestRolloutInProgressIsNotRestarted(t *testing.T) {
	c := newCluster(t)
	node := c.node("a")
	d, _ := c.deployment(node)
	c.change(d, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "next" })
	c.awaitNewPod()
	changed := c.generationOf(d)
	drains := c.startDrains(drain.Options{})
	machine := drains.requestDrain(node, time.Hour, restart)
	drains.awaitOne(machine, "the message", mentions("waits for the rollout of Deployment web"))
	if after := c.generationOf(d); after != changed {
		t.Errorf("the generation is %d, want %d", after, changed)
	}
}

// Without the permission, the message contains the error. The drain tries the restart again.
//
// Rule: single-replica-restart.
func TestFailedRestartIsReportedAndRepeated(t *testing.T) {
	forbidden := apierrors.NewForbidden(appsv1.Resource("deployments"), "web", errors.New("no permission"))
	for name, tc := range map[string]struct {
		change func(*interceptor.Funcs, *bool)
		want   string
	}{
		"get": {func(f *interceptor.Funcs, fail *bool) {
			f.Get = func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				if _, is := o.(*appsv1.Deployment); is && *fail {
					*fail = false
					return forbidden
				}
				return w.Get(ctx, key, o, opts...)
			}
		}, "cannot restart the Deployment of the pod"},
		"patch": {func(f *interceptor.Funcs, fail *bool) {
			f.Patch = func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch,
				opts ...client.PatchOption) error {
				if _, is := o.(*appsv1.Deployment); is && *fail {
					*fail = false
					return forbidden
				}
				return w.Patch(ctx, o, p, opts...)
			}
		}, "cannot restart Deployment web"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			node, other := c.node("a"), c.node("b")
			c.deployment(node)
			fail, funcs := true, interceptor.Funcs{}
			tc.change(&funcs, &fail)
			drains := c.startDrains(drain.Options{}, func(o *drain.Options) {
				o.Target = interceptor.NewClient(c.WithWatch, funcs)
			})
			machine := drains.requestDrain(node, time.Hour, restart)
			o := drains.awaitOne(machine, "the message", mentions(tc.want))
			if !mentions("no permission")(o) {
				t.Errorf("the message %q does not contain the error", o.Message)
			}
			c.run(c.awaitNewPod(), other)
			drains.awaitOne(machine, "the drain", isDone)
		})
	}
}
