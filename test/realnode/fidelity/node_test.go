//go:build e2e && linux

package fidelity

import (
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/controlplane/auditlog"
)

// answered returns the requests about nodes and Leases that a node's kubelet has had answers to since some time.
func (c *cluster) answered(t *testing.T, n node, since time.Time) []auditlog.Request {
	t.Helper()
	found, err := c.audit.Requests(auditlog.Filter{Users: []string{"system:node:" + n.name},
		Match: func(r auditlog.Request) bool {
			return r.Received.After(since) && (r.Resource == "nodes" || r.Resource == "leases")
		}})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// asks waits until a kubelet has had some answers since some time.
func (c *cluster) asks(t *testing.T, n node, since time.Time, times int, match func(auditlog.Request) bool) {
	t.Helper()
	limit, tick := time.NewTimer(patience), time.NewTicker(100*time.Millisecond)
	defer limit.Stop()
	defer tick.Stop()
	for {
		seen := 0
		for _, r := range c.answered(t, n, since) {
			if match(r) {
				seen++
			}
		}
		if seen >= times {
			return
		}
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("the kubelet of %s has had such an answer only %d times", n.name, seen)
		}
	}
}

// renews is that a kubelet has renewed its Lease. It compares its Node with itself more often.
func renews(r auditlog.Request) bool {
	return r.Verb == "update" && r.Resource == "leases" && r.Code == 200
}

// change patches a Node, or its status.
func (c *cluster) change(t *testing.T, n node, how func(*corev1.Node)) {
	t.Helper()
	o := &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: n.name}, o); err != nil {
		t.Fatal(err)
	}
	before, changed := o.DeepCopy(), o.DeepCopy()
	how(changed)
	for _, err := range []error{c.Patch(t.Context(), changed.DeepCopy(), client.MergeFrom(before)),
		c.Status().Patch(t.Context(), changed.DeepCopy(), client.MergeFrom(before))} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// others change whatever a kubelet has said, in two steps, and add something of their own.
var others = []func(*corev1.Node){
	func(o *corev1.Node) {
		for key := range o.Labels {
			o.Labels[key] = "changed"
		}
		for key := range o.Annotations {
			o.Annotations[key] = "changed"
		}
		o.Labels["example.com/others"], o.Annotations["example.com/others"] = "x", "x"
		o.Spec.Taints = []corev1.Taint{{Key: "example.com/others", Effect: corev1.TaintEffectPreferNoSchedule}}
		o.Status.Capacity["example.com/thing"] = *o.Status.Capacity.Pods()
		o.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "v", DevicePath: "d"}}
		o.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"}
		o.Status.Conditions = append(o.Status.Conditions, corev1.NodeCondition{Type: "Others", Status: corev1.ConditionTrue})
	},
	func(o *corev1.Node) {
		o.Labels, o.Annotations, o.Spec.Taints = nil, nil, nil
		delete(o.Status.Capacity, corev1.ResourceCPU)
		for i := range o.Status.Conditions {
			o.Status.Conditions[i].Status, o.Status.Conditions[i].Reason = corev1.ConditionUnknown, "Test"
		}
	},
}

// A kubelet that runs says again what its node is, but not all of it, and leaves the rest to others. When it is started
// anew it says more.
func TestWhatOthersWriteOnANode(t *testing.T) {
	alone(t, func(t *testing.T, c *cluster, n node) (all []string) {
		c.record.shows(t, 0, registered(n.name), "Ready=True")
		shows := func(since time.Time) {
			c.asks(t, n, since, 2, renews)
			o := &corev1.Node{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: n.name}, o); err != nil {
				t.Fatal(err)
			}
			all = append(all, registered(n.name)(o)+fmt.Sprint(" attached ", o.Status.VolumesAttached, " in use ",
				o.Status.VolumesInUse))
		}
		for _, write := range others {
			at := time.Now()
			c.change(t, n, write)
			shows(at)
			if at = time.Now(); n.restart() != nil {
				t.Fatal("it does not start again")
			}
			shows(at)
		}
		return all
	})
}

// A kubelet whose Node was deleted does not make another one while it runs, and no Lease either. Once it is started
// anew it registers as the first time.
func TestANodeThatIsDeleted(t *testing.T) {
	alone(t, func(t *testing.T, c *cluster, n node) []string {
		c.record.shows(t, 0, lease(n.name), "Lease")
		from, at := c.record.now(), time.Now()
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
		if err := c.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		all := c.record.shows(t, from, lease(n.name), "gone") // Its owner's end takes it along.
		c.asks(t, n, at, 1, func(r auditlog.Request) bool { return r.Resource == "leases" && r.Code >= 400 })
		c.asks(t, n, time.Now(), 3, func(r auditlog.Request) bool { return r.Resource == "nodes" && r.Code == 404 })
		for _, r := range c.answered(t, n, at) {
			if text := line(r.Verb, r.Resource, r.Subresource, r.Code); r.Verb != "get" && !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
		from = c.record.now()
		if err := n.restart(); err != nil {
			t.Fatal(err)
		}
		all = append(all, c.record.shows(t, from, registered(n.name), "Ready=True")...)
		return append(all, c.record.shows(t, from, lease(n.name), "Lease")...)
	})
}

// lease describes that of a node, without when it was renewed.
func lease(name string) func(client.Object) string {
	return func(o client.Object) string {
		x, is := o.(*coordinationv1.Lease)
		if !is || x.Name != name {
			return ""
		}
		return line("Lease of", *x.Spec.HolderIdentity, *x.Spec.LeaseDurationSeconds, owners(x))
	}
}

// A Lease is renewed each quarter of its duration, here every two seconds and a bit. Where the machine is busy one
// renewal is late, and the next one comes soon after it, so the middle one of the intervals counts.
func TestHowOftenALeaseIsRenewed(t *testing.T) {
	compare(t, func(t *testing.T, c *cluster, n node) []string {
		var times []time.Time
		c.record.order(t, func(o client.Object) string {
			x, is := o.(*coordinationv1.Lease)
			if !is || x.Name != n.name {
				return ""
			}
			if at := x.Spec.RenewTime.Time; !slices.Contains(times, at) {
				times = append(times, at)
			}
			return fmt.Sprint("renewed ", len(times))
		}, "renewed 6")
		var intervals []time.Duration
		for i := range times[1:] {
			intervals = append(intervals, times[i+1].Sub(times[i]))
		}
		slices.Sort(intervals)
		return []string{fmt.Sprint(intervals[len(intervals)/2].Round(time.Second))}
	})
}
