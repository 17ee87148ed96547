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

func (c *cluster) requests(t *testing.T, n node, since time.Time) []auditlog.Request {
	t.Helper()
	found, err := c.audit.Requests(auditlog.Filter{Users: []string{"system:node:" + n.name},
		Match: func(r auditlog.Request) bool {
			return r.ReceivedAt.After(since) && (r.Resource == "nodes" || r.Resource == "leases")
		}})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func (c *cluster) awaitRequests(t *testing.T, n node, since time.Time, times int, match func(auditlog.Request) bool) {
	t.Helper()
	limit, tick := time.NewTimer(patience), time.NewTicker(100*time.Millisecond)
	defer limit.Stop()
	defer tick.Stop()
	for {
		count := 0
		for _, r := range c.requests(t, n, since) {
			if match(r) {
				count++
			}
		}
		if count >= times {
			return
		}
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("the kubelet of %s: got %d matching answers, want %d", n.name, count, times)
		}
	}
}

// renewsLease matches a renewal of the Lease. The test ignores the requests in which the kubelet reads its Node,
// because they are more frequent than renewals.
func renewsLease(r auditlog.Request) bool {
	return r.Verb == "update" && r.Resource == "leases" && r.Code == 200
}

func (c *cluster) change(t *testing.T, n node, edit func(*corev1.Node)) {
	t.Helper()
	o := &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: n.name}, o); err != nil {
		t.Fatal(err)
	}
	before, changed := o.DeepCopy(), o.DeepCopy()
	edit(changed)
	for _, err := range []error{c.Patch(t.Context(), changed.DeepCopy(), client.MergeFrom(before)),
		c.Status().Patch(t.Context(), changed.DeepCopy(), client.MergeFrom(before))} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// foreignChanges are two changes of a Node by another client. Each change modifies and deletes values that the kubelet
// has set, and adds new values.
var foreignChanges = []func(*corev1.Node){
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

// A running kubelet restores some values that another client changes, and keeps other changes. After a restart, the
// kubelet also restores some changed values that it kept while it was running.
func TestKubeletKeepsOrRevertsChangesOfNode(t *testing.T) {
	compareAlone(t, func(t *testing.T, c *cluster, n node) (all []string) {
		c.record.states(t, 0, nodeState(n.name), "Ready=True")
		addState := func(since time.Time) {
			c.awaitRequests(t, n, since, 2, renewsLease)
			o := &corev1.Node{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: n.name}, o); err != nil {
				t.Fatal(err)
			}
			all = append(all, nodeState(n.name)(o)+fmt.Sprint(" attached ", o.Status.VolumesAttached, " in use ",
				o.Status.VolumesInUse))
		}
		for _, write := range foreignChanges {
			at := time.Now()
			c.change(t, n, write)
			addState(at)
			if at = time.Now(); n.restart() != nil {
				t.Fatal("the kubelet does not restart")
			}
			addState(at)
		}
		return all
	})
}

// A running kubelet whose Node was deleted creates neither a Node nor a Lease. After a restart, the kubelet registers
// again like a new node.
func TestKubeletOfDeletedNode(t *testing.T) {
	compareAlone(t, func(t *testing.T, c *cluster, n node) []string {
		c.record.states(t, 0, lease(n.name), "Lease")
		from, at := c.record.count(), time.Now()
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
		if err := c.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		all := c.record.states(t, from, lease(n.name), "gone") // The Lease is deleted with its owner, the Node.
		c.awaitRequests(t, n, at, 1, func(r auditlog.Request) bool { return r.Resource == "leases" && r.Code >= 400 })
		c.awaitRequests(t, n, time.Now(), 3, func(r auditlog.Request) bool { return r.Resource == "nodes" && r.Code == 404 })
		for _, r := range c.requests(t, n, at) {
			if text := line(r.Verb, r.Resource, r.Subresource, r.Code); r.Verb != "get" && !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
		from = c.record.count()
		if err := n.restart(); err != nil {
			t.Fatal(err)
		}
		all = append(all, c.record.states(t, from, nodeState(n.name), "Ready=True")...)
		return append(all, c.record.states(t, from, lease(n.name), "Lease")...)
	})
}

func lease(name string) func(client.Object) string {
	return func(o client.Object) string {
		x, ok := o.(*coordinationv1.Lease)
		if !ok || x.Name != name {
			return ""
		}
		return line("Lease of", *x.Spec.HolderIdentity, *x.Spec.LeaseDurationSeconds, owners(x))
	}
}

// The kubelet renews its Lease after each quarter of the lease duration, here a little more than two seconds. On a busy
// host, a renewal may be late and the next interval shorter. So the test compares the median interval.
func TestKubeletRenewsLease(t *testing.T) {
	compare(t, func(t *testing.T, c *cluster, n node) []string {
		var times []time.Time
		c.record.distinctStates(t, func(o client.Object) string {
			x, ok := o.(*coordinationv1.Lease)
			if !ok || x.Name != n.name {
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
