package drain_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/drain"
)

func minAvailable(n int) func(*policyv1.PodDisruptionBudget) {
	value := intstr.FromInt(n)
	return func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = &value }
}

// Rule: evictions-keep-budgets.
func TestBudgetIsRespectedUntilItAllowsEvictions(t *testing.T) {
	c := newCluster(t)
	node := c.node("a")
	first, second := c.pod(node, "web-1"), c.pod(node, "web-2")
	budget := c.budget("web", minAvailable(2), false)
	drains := c.startDrains(drain.Options{})
	machine := drains.requestDrain(node, time.Hour)

	o := drains.awaitOne(machine, "both pods to be refused", func(o drain.Outcome) bool { return len(o.Blockers) == 2 })
	if o.Reason != v1beta1.ReasonBlockedByDisruptionBudget {
		t.Errorf("got reason %s", o.Reason)
	}
	for _, pod := range []*corev1.Pod{first, second} {
		want := fmt.Sprintf("%s/%s (PodDisruptionBudget web can never allow the eviction: minAvailable is 2, of 2 pods)",
			c.namespace, pod.Name)
		if !strings.Contains(o.Message, want) {
			t.Errorf("the message %q does not contain %q", o.Message, want)
		}
		if now := c.podNow(pod); now == nil || !now.DeletionTimestamp.IsZero() {
			t.Errorf("pod %s is terminating although its budget refuses the eviction", pod.Name)
		}
	}

	changed := budget.DeepCopy()
	minAvailable(0)(changed)
	if err := c.Patch(context.Background(), changed, client.MergeFrom(budget)); err != nil {
		t.Fatal(err)
	}
	if o := drains.awaitOne(machine, "the drain", isDone); o.Reason != v1beta1.ReasonDrained {
		t.Errorf("got %+v", o)
	}
	if c.podNow(first) != nil || c.podNow(second) != nil {
		t.Error("the drain is done although a pod is left")
	}
}

func TestOverlappingBudgetsAreNamed(t *testing.T) {
	c := newCluster(t)
	node := c.node("a")
	pod := c.pod(node, "web")
	c.budget("one", minAvailable(0), true)
	c.budget("two", minAvailable(0), true)
	for name, edit := range map[string]func(*drain.Options){
		"through its own connection": func(*drain.Options) {},
		"through the client":         func(o *drain.Options) { o.Evict = nil },
	} {
		drains := c.startDrains(drain.Options{}, edit)
		o := drains.awaitOne(drains.requestDrain(node, time.Hour), "the rejection "+name, func(o drain.Outcome) bool {
			return len(o.Blockers) == 1
		})
		if b := o.Blockers[0]; !b.NeverAllowed || !slices.Equal(b.Budgets, []string{"one", "two"}) {
			t.Errorf("%s: got %+v", name, b)
		}
		if now := c.podNow(pod); now == nil || !now.DeletionTimestamp.IsZero() {
			t.Fatalf("%s: the pod is terminating", name)
		}
	}
}

// Rule: drain-order.
func TestPodsBoundToTheirNodeAreNotEvicted(t *testing.T) {
	c := newCluster(t)
	agents := &appsv1.DaemonSet{ObjectMeta: c.meta("agents"), Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "agent"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		},
	}}
	c.create(agents)
	of := func(name string, uid types.UID) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(
				&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}},
				appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
		}
	}
	mirror := func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"} }

	node := c.node("a")
	agent := c.pod(node, "agent", of("agents", agents.UID))
	static := c.pod(node, "static", mirror)
	former := c.pod(node, "former", of("former-agents", "gone"))
	recreated := c.pod(node, "recreated", of("agents", "uid-of-a-deleted-one"))
	web := c.pod(node, "web")
	drains := c.startDrains(drain.Options{})
	drains.awaitOne(drains.requestDrain(node, time.Hour), "the drain", isDone)
	for _, pod := range []*corev1.Pod{agent, static} {
		if now := c.podNow(pod); now == nil || !now.DeletionTimestamp.IsZero() {
			t.Errorf("pod %s was evicted", pod.Name)
		}
	}
	for _, pod := range []*corev1.Pod{former, recreated, web} {
		if c.podNow(pod) != nil {
			t.Errorf("pod %s was not evicted", pod.Name)
		}
	}
}

// Rule: budgets-hold-until-deadline.
func TestPodsAreDeletedWithGraceNearTheDeadline(t *testing.T) {
	c := newCluster(t)
	node := c.node("a")
	pod := c.pod(node, "web", blocked, withGrace(3))
	c.budget("web", minAvailable(1), false)
	drains := c.startDrains(drain.Options{})
	const length = 8 * time.Second
	begun := time.Now()
	machine := drains.requestDrain(node, length)
	var now corev1.Pod
	await(c, "the deletion of the pod", &corev1.PodList{}, func(l *corev1.PodList) (bool, string) {
		if len(l.Items) == 1 {
			now = l.Items[0]
		}
		return len(l.Items) == 0 || !now.DeletionTimestamp.IsZero(), "the pod is not terminating"
	})
	if now.DeletionGracePeriodSeconds == nil || *now.DeletionGracePeriodSeconds < 1 ||
		*now.DeletionGracePeriodSeconds > 3 {
		t.Fatalf("the pod was deleted with grace period %v, want 1 to 3 s", now.DeletionGracePeriodSeconds)
	}
	// The API server stores whole seconds.
	deleted := now.DeletionTimestamp.Add(-time.Duration(*now.DeletionGracePeriodSeconds-1) * time.Second)
	if moment := begun.Add(length - 3*time.Second); deleted.Before(moment) {
		t.Errorf("the pod was deleted at %s, before %s", deleted, moment)
	}
	c.remove(pod)
	drains.awaitOne(machine, "the drain", isDone)
}

// A second deletion with a grace period does not remove the pod at once.
//
// Rule: budgets-hold-until-deadline.
func TestLongGracePeriodIsShortenedAtTheDeadline(t *testing.T) {
	c := newCluster(t)
	node := c.node("a")
	pod := c.pod(node, "web", blocked, withGrace(3600))
	if err := c.Delete(context.Background(), pod); err != nil {
		t.Fatal(err)
	}
	drains := c.startDrains(drain.Options{})
	drains.requestDrain(node, 0)
	await(c, "the grace period to be shortened", &corev1.PodList{}, func(l *corev1.PodList) (bool, string) {
		if len(l.Items) == 0 {
			t.Fatal("the pod was removed while its containers were running")
		}
		grace := *l.Items[0].DeletionGracePeriodSeconds
		return grace == 1, fmt.Sprint(grace, " s")
	})
}

func TestStuckPodIsLeftBehindAfterTheDeadline(t *testing.T) {
	c := newCluster(t)
	node := c.node("a")
	pod := c.pod(node, "web", blocked)
	drains := c.startDrains(drain.Options{})
	o := drains.awaitOne(drains.requestDrain(node, 0), "the drain", isDone)
	if want := fmt.Sprintf("These pods were left on the node: %s/web (still terminating after the drain deadline).",
		c.namespace); o.Message != want {
		t.Errorf("got %q, want %q", o.Message, want)
	}
	if now := c.podNow(pod); now == nil || *now.DeletionGracePeriodSeconds != 1 {
		t.Error("the pod did not get a grace period of one second")
	}
	c.remove(pod)
}

func TestForceEndsTheDrainWithoutEvictions(t *testing.T) {
	c := newCluster(t)
	node := c.node("a")
	c.pod(node, "web-1")
	c.pod(node, "web-2")
	c.budget("web", minAvailable(2), false)
	drains := c.startDrains(drain.Options{})
	machine := drains.requestDrain(node, time.Hour)
	drains.awaitOne(machine, "the rejections", func(o drain.Outcome) bool { return len(o.Blockers) == 2 })
	drains.requestDrain(node, time.Hour, func(r *drain.Request) { r.Force = true })
	if o := drains.awaitOne(machine, "the end", isDone); o.Reason != v1beta1.ReasonSkipped {
		t.Errorf("got %+v", o)
	}
	var left corev1.PodList
	if err := c.List(context.Background(), &left, client.InNamespace(c.namespace)); err != nil {
		t.Fatal(err)
	}
	if len(left.Items) != 2 || left.Items[0].DeletionTimestamp != nil || left.Items[1].DeletionTimestamp != nil {
		t.Errorf("pods were changed: %v", left.Items)
	}
}

// Rule: drains-have-own-workers.
func TestWorkersLimitTheEvictionsInFlight(t *testing.T) {
	c := newCluster(t)
	const machines, podsEach, workers = 200, 3, 6
	evict, err := drain.EvictWith(c.config, nil)
	if err != nil {
		t.Fatal(err)
	}
	var inFlight, peak, sent atomic.Int64
	counted := func(ctx context.Context, e *policyv1.Eviction) error {
		defer inFlight.Add(-1)
		for now := inFlight.Add(1); ; {
			if before := peak.Load(); now <= before || peak.CompareAndSwap(before, now) {
				break
			}
		}
		sent.Add(1)
		return evict(ctx, e)
	}
	var nodes []*corev1.Node
	for i := range machines {
		node := c.node(fmt.Sprint("n", i))
		nodes = append(nodes, node)
		for j := range podsEach {
			c.pod(node, fmt.Sprintf("web-%d-%d", i, j))
		}
	}
	drains := c.startDrains(drain.Options{Evict: counted, Workers: workers})
	begun := time.Now()
	for _, node := range nodes {
		drains.requestDrain(node, time.Hour)
	}
	drains.await("all drains", func(all map[types.NamespacedName]drain.Outcome) bool {
		done := 0
		for _, o := range all {
			if o.IsDone {
				done++
			}
		}
		return done == machines
	})
	if peak := peak.Load(); peak > workers || peak < 2 {
		t.Errorf("%d concurrent evictions, want 2 to %d", peak, workers)
	}
	if sent := sent.Load(); sent != machines*podsEach {
		t.Errorf("%d evictions, want %d", sent, machines*podsEach)
	}
	t.Logf("%d drains of %d pods took %s, with %d passes of the reconciler and at most %d evictions in flight",
		machines, podsEach, time.Since(begun).Round(time.Millisecond), drains.passes, peak.Load())
}

// Rule: evictions-keep-budgets.
func TestEvictionChecksTheUIDOfThePod(t *testing.T) {
	c := newCluster(t)
	pod := c.pod(c.node("a"), "web")
	evict, err := drain.EvictWith(c.config, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = evict(context.Background(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: c.namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")},
	})
	if !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	if now := c.podNow(pod); now == nil || !now.DeletionTimestamp.IsZero() {
		t.Error("the pod was evicted")
	}
}

func TestDetachedVolumesTriggerTheMachine(t *testing.T) {
	c := newCluster(t)
	node := c.node("a")
	volume := "pv-" + c.namespace
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-" + c.namespace},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "disk.example.com", NodeName: node.Name,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
		},
	}
	c.create(attachment)
	inline := attachment.DeepCopy()
	inline.ObjectMeta = metav1.ObjectMeta{Name: "csi-inline-" + c.namespace}
	inline.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{
		AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: "x"}},
	}}
	c.create(inline)

	drains := c.startDrains(drain.Options{})
	machine := drains.requestDrain(node, time.Hour)
	drained := drains.awaitOne(machine, "the drain", isDone).LastPodGone
	request := drain.VolumesRequest{
		Subject:   drain.Subject{Machine: machine, UID: types.UID(node.Name), Node: node.Name, NodeUID: node.UID},
		DrainTime: drained, Timeout: time.Hour,
	}
	if o := drains.VolumesDetached(context.Background(), request); o.IsDone || !strings.Contains(o.Message, volume) {
		t.Errorf("got %+v, want a wait for %s", o, volume)
	}
	c.remove(attachment)
	drains.await("the machine to be triggered when its volume is detached",
		func(map[types.NamespacedName]drain.Outcome) bool {
			return drains.VolumesDetached(context.Background(), request).IsDone
		})
	c.remove(inline)
}

// Rule: cordon-only-own.
func TestCordonAndUncordon(t *testing.T) {
	c := newCluster(t)
	ctx := context.Background()
	const label = v1beta1.NodeLabelExcludeFromLoadBalancers
	state := func(n *corev1.Node) string {
		value, labelled := n.Labels[label]
		return fmt.Sprintf("unschedulable %t, labelled %t %q", n.Spec.Unschedulable, labelled, value)
	}
	tests := []struct {
		name             string
		edit             func(*corev1.Node)
		cordoned, before string
	}{
		{"a new node", func(*corev1.Node) {}, `unschedulable true, labelled true "machinist"`,
			`unschedulable false, labelled false ""`},
		{"the cordon of an administrator stays", func(n *corev1.Node) { n.Spec.Unschedulable = true },
			`unschedulable true, labelled true "machinist"`, `unschedulable true, labelled false ""`},
		{"the label of an administrator stays", func(n *corev1.Node) { n.Labels = map[string]string{label: ""} },
			`unschedulable true, labelled true ""`, `unschedulable false, labelled true ""`},
		{"the cordon and the label of an administrator stay", func(n *corev1.Node) {
			n.Spec.Unschedulable, n.Labels = true, map[string]string{label: "mine"}
		},
			`unschedulable true, labelled true "mine"`, `unschedulable true, labelled true "mine"`},
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(c.namespace, "-", i)}}
			test.edit(node)
			c.create(node)
			given := node.DeepCopy()
			// A heartbeat of the kubelet between the read of the Node and the patch must not cause a conflict.
			updated := node.DeepCopy()
			updated.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			if err := c.Status().Patch(ctx, updated, client.MergeFrom(node)); err != nil {
				t.Fatal(err)
			}
			cordoned, err := drain.Cordon(ctx, c, node)
			if err != nil {
				t.Fatal(err)
			}
			if got := state(cordoned); got != test.cordoned {
				t.Errorf("cordoned: got %s, want %s", got, test.cordoned)
			}
			if state(node) != state(given) {
				t.Error("Cordon modified its argument")
			}
			again, err := drain.Cordon(ctx, c, cordoned)
			if err != nil || again != cordoned {
				t.Errorf("a second Cordon sends a patch or fails: %v", err)
			}
			uncordoned, err := drain.Uncordon(ctx, c, again)
			if err != nil {
				t.Fatal(err)
			}
			if got := state(uncordoned); got != test.before {
				t.Errorf("uncordoned: got %s, want %s", got, test.before)
			}
			if again, err := drain.Uncordon(ctx, c, uncordoned); err != nil || again != uncordoned {
				t.Errorf("a second Uncordon sends a patch or fails: %v", err)
			}

			successor := uncordoned.DeepCopy()
			successor.UID, successor.Labels, successor.Spec.Unschedulable = "another", nil, false
			if _, err := drain.Cordon(ctx, c, successor); !apierrors.IsConflict(err) {
				t.Errorf("a Node with another UID: got %v, want a conflict", err)
			}
			c.remove(node)
			if _, err := drain.Cordon(ctx, c, successor); !apierrors.IsNotFound(err) {
				t.Errorf("a deleted Node: got %v, want not found", err)
			}
		})
	}
	if _, err := drain.Cordon(ctx, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x"}}); err == nil {
		t.Error("Cordon accepts a Node without a UID")
	}
}

// patches is a client that records the content of each patch. conflicts is the number of patches that fail with a
// conflict before the first success.
type patches struct {
	client.Client
	conflicts int
	sent      []string
}

func (p *patches) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	if p.sent = append(p.sent, string(data)); len(p.sent) <= p.conflicts {
		return apierrors.NewConflict(corev1.Resource("nodes"), o.GetName(), errors.New("the Node was changed"))
	}
	return nil
}

// Rule: cordon-only-own.
func TestCordonSetsTheTaintInTheSamePatch(t *testing.T) {
	const metadata = `"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":"machinist"},"annotations":{"machinist.dev/cordoned":"true"}`
	const other = `{"key":"example.org/reserved","effect":"NoSchedule"}`
	taints := []corev1.Taint{{Key: "example.org/reserved", Effect: corev1.TaintEffectNoSchedule}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "7"},
		Spec: corev1.NodeSpec{Taints: taints}}
	cordoned := node.DeepCopy()
	cordoned.Annotations = map[string]string{v1beta1.NodeAnnotationCordoned: "true"}
	cordoned.Spec.Unschedulable = true
	cordoned.Spec.Taints = append(cordoned.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable,
		Effect: corev1.TaintEffectNoSchedule})
	cordon := func(ctx context.Context, c client.Client) error { _, err := drain.Cordon(ctx, c, node); return err }
	uncordon := func(ctx context.Context, c client.Client) error {
		_, err := drain.Uncordon(ctx, c, cordoned)
		return err
	}
	tests := []struct {
		name      string
		do        func(context.Context, client.Client) error
		conflicts int
		want      []string
		fails     bool
	}{
		{"cordon sets the taint in the same patch", cordon, 0, []string{
			`{"metadata":{"uid":"u","resourceVersion":"7",` + metadata + `},"spec":{"taints":[` + other +
				`,{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule"}],"unschedulable":true}}`}, false},
		{"cordon leaves the taint to Kubernetes after a conflict", cordon, 1, []string{
			`{"metadata":{"uid":"u","resourceVersion":"7",` + metadata + `},"spec":{"taints":[` + other +
				`,{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule"}],"unschedulable":true}}`,
			`{"metadata":{"uid":"u",` + metadata + `},"spec":{"unschedulable":true}}`}, false},
		{"uncordon removes the taint", uncordon, 0, []string{
			`{"metadata":{"uid":"u","resourceVersion":"7","annotations":{"machinist.dev/cordoned":null}},"spec":{"taints":[` +
				other + `],"unschedulable":false}}`}, false},
		{"uncordon fails after a conflict", uncordon, 1, []string{
			`{"metadata":{"uid":"u","resourceVersion":"7","annotations":{"machinist.dev/cordoned":null}},"spec":{"taints":[` +
				other + `],"unschedulable":false}}`}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := &patches{conflicts: test.conflicts}
			if err := test.do(t.Context(), c); apierrors.IsConflict(err) != test.fails || !test.fails && err != nil {
				t.Errorf("got error %v", err)
			}
			if !slices.Equal(c.sent, test.want) {
				t.Errorf("sent %q, want %q", c.sent, test.want)
			}
		})
	}
}
