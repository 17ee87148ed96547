package capacity

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

var began = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// The wait grows with the time since the first refusal.
//
// Rule: capacity-memory.
func TestTheWaitBetweenProbesGrows(t *testing.T) {
	t.Parallel()
	class := &v1beta1.MachineClass{}
	now := began
	for i, want := range []time.Duration{time.Minute, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute,
		16 * time.Minute, 30 * time.Minute, 30 * time.Minute} {
		status := refused(class, "no host", now)
		if status == nil {
			t.Fatalf("refusal %d changes nothing", i+1)
		}
		class.Status = *status
		state := StateOf(class)
		if got := state.Wait(now); got != want || !state.Exhausted || !state.Since.Equal(began) {
			t.Errorf("after refusal %d: %+v, wait %s, want %s", i+1, state, got, want)
		}
		if again := refused(class, "another answer", now.Add(want-time.Second)); again != nil {
			t.Errorf("a refusal before the next probe changes the status to %+v", again)
		}
		now = now.Add(want)
	}
	class.Status = *found(class, now)
	if state := StateOf(class); state != (State{}) || class.Status.CapacityRetryTime != nil {
		t.Errorf("after an instance was found: %+v, %+v", state, class.Status)
	}
	if again := found(class, now); again != nil {
		t.Errorf("another instance changes the status to %+v", again)
	}
	class.Status = *refused(class, "no host", now)
	if wait := StateOf(class).Wait(now); wait != MinWait {
		t.Errorf("the first wait is %s after capacity was found", wait)
	}
}

// Any client that may write the status of a class may write these times.
//
// Rule: capacity-memory.
func TestImplausibleRetryTimesDoNotBlockProbes(t *testing.T) {
	t.Parallel()
	for name, retry := range map[string]*metav1.Time{
		"missing": nil, "next year": {Time: began.AddDate(1, 0, 0)}, "last year": {Time: began.AddDate(-1, 0, 0)},
	} {
		class := &v1beta1.MachineClass{}
		class.Status = *refused(class, "no host", began)
		class.Status.CapacityRetryTime = retry
		class.Status.Conditions[0].LastTransitionTime = metav1.NewTime(began.AddDate(1, 0, 0))
		if wait := StateOf(class).Wait(began); wait != 0 {
			t.Errorf("%s: a machine may probe after %s", name, wait)
		}
		if status := refused(class, "no host", began); status == nil || !status.CapacityRetryTime.Equal(&metav1.Time{
			Time: began.Add(MinWait)}) {
			t.Errorf("%s: the status after a refusal is %+v", name, status)
		}
	}
}

// Rule: capacity-shared-by-pool.
func TestPoolOf(t *testing.T) {
	t.Parallel()
	classOf := func(change ...func(*v1beta1.MachineClass)) *v1beta1.MachineClass {
		class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one"}}
		class.Spec.CredentialsRef = &v1beta1.LocalRef{Name: "cloud"}
		class.Status.NodeInfo = &v1beta1.NodeInfo{InstanceType: "large", Region: "mars", Zone: "mars-a"}
		for _, f := range change {
			f(class)
		}
		return class
	}
	other := func(c *v1beta1.MachineClass) { c.Name = "other" }
	inAccount := func(c *v1beta1.MachineClass) { c.Status.Account = "project" }
	otherCredentials := func(c *v1beta1.MachineClass) { c.Name, c.Spec.CredentialsRef.Name = "other", "other" }
	noPlace := func(c *v1beta1.MachineClass) { c.Status.NodeInfo.Region, c.Status.NodeInfo.Zone = "", "" }
	for name, tc := range map[string]struct {
		a, b   *v1beta1.MachineClass
		pool   string
		shared bool
	}{
		"equal":                                 {classOf(), classOf(other), "", true},
		"another zone":                          {classOf(), classOf(other, func(c *v1beta1.MachineClass) { c.Status.NodeInfo.Zone = "mars-b" }), "", false},
		"another region":                        {classOf(), classOf(other, func(c *v1beta1.MachineClass) { c.Status.NodeInfo.Region = "moon" }), "", false},
		"another type":                          {classOf(), classOf(other, func(c *v1beta1.MachineClass) { c.Status.NodeInfo.InstanceType = "small" }), "", false},
		"another pool of the driver":            {classOf(), classOf(other), "spot", false},
		"other credentials":                     {classOf(), classOf(otherCredentials), "", false},
		"other credentials of the same account": {classOf(inAccount), classOf(otherCredentials, inAccount), "", true},
		"another namespace":                     {classOf(), classOf(other, func(c *v1beta1.MachineClass) { c.Namespace = "other" }), "", false},
		"another namespace with the same account": {classOf(inAccount), classOf(inAccount, func(c *v1beta1.MachineClass) {
			c.Namespace = "other"
		}), "", true},
		"the place is unknown":       {classOf(noPlace), classOf(other, noPlace), "", false},
		"the provider knows nothing": {classOf(func(c *v1beta1.MachineClass) { c.Status.NodeInfo = nil }), classOf(other, func(c *v1beta1.MachineClass) { c.Status.NodeInfo = nil }), "", false},
	} {
		if got := PoolOf(tc.a, "") == PoolOf(tc.b, tc.pool); got != tc.shared {
			t.Errorf("%s: the classes share their capacity: %t, want %t", name, got, tc.shared)
		}
	}
}
