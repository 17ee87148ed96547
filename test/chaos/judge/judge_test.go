package judge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

// history reports the changes of a deployment "pool", its sets and its machines to a judge.
type history struct {
	*Judge
	at       time.Time
	machines map[string]*v1beta1.Machine
}

// newHistory returns the history of a pool of n replicas with one set, "old", and the running machines m0, m1 and so
// on. The pool allows one surge machine and one unavailable machine.
func newHistory(n int32) *history {
	s := &history{Judge: New(time.Minute), at: time.Date(2031, 5, 7, 12, 0, 0, 0, time.UTC),
		machines: map[string]*v1beta1.Machine{}}
	s.deployment(n)
	s.set("old", n)
	for i := range n {
		s.create(fmt.Sprintf("m%d", i), "old")
		s.ready(fmt.Sprintf("m%d", i), true)
	}
	s.wait(time.Hour)
	return s
}

func (s *history) wait(d time.Duration) { s.at = s.at.Add(d) }

func (s *history) deployment(n int32) *v1beta1.MachineDeployment {
	d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "pool", UID: "pool"}}
	d.Spec.Replicas = &n
	d.Spec.Strategy.RollingUpdate = &v1beta1.RollingUpdate{MaxSurge: new(intstr.FromInt32(1)),
		MaxUnavailable: new(intstr.FromInt32(1))}
	s.Object(s.at, d)
	return d
}

func owned(kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{Kind: kind, Name: name, UID: types.UID(name), Controller: new(true)}}
}

func (s *history) set(name string, n int32) *v1beta1.MachineSet {
	set := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name),
		OwnerReferences: owned("MachineDeployment", "pool")}}
	set.Spec.Replicas = &n
	s.Object(s.at, set)
	return set
}

func (s *history) create(name, set string) {
	s.machines[name] = &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name),
		OwnerReferences: owned("MachineSet", set)}}
	s.Object(s.at, s.machines[name].DeepCopy())
	s.instance("i-"+name, name, simcloud.StateRunning)
}

func (s *history) instance(id, machine string, state simcloud.InstanceState) {
	in := simcloud.Instance{ID: id, Hostname: machine, State: state}
	if machine != "" {
		in.Tags = map[string]string{provider.TagMachineUID: machine}
	}
	s.Instance(s.at, in)
}

func (s *history) ready(name string, ready bool) {
	m := s.machines[name]
	status := metav1.ConditionFalse
	if ready {
		status = metav1.ConditionTrue
	}
	m.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: status}}
	s.Object(s.at, m.DeepCopy())
}

func (s *history) requestDeletion(name string) {
	s.machines[name].DeletionTimestamp = &metav1.Time{Time: s.at}
	s.Object(s.at, s.machines[name].DeepCopy())
}

func (s *history) remove(name string) {
	s.requestDeletion(name)
	s.wait(time.Second)
	s.instance("i-"+name, name, simcloud.StateShuttingDown)
	s.instance("i-"+name, name, simcloud.StateTerminated)
	s.NodeGone(s.at, name)
	s.gone(name)
}

func (s *history) gone(name string) { s.ObjectGone(s.at, s.machines[name]) }

func TestJudgeFindsBreaches(t *testing.T) {
	for name, c := range map[string]struct {
		report func(s *history)
		want   string // a part of the only breach, or "" for none
	}{
		"complete rollout": {func(s *history) {
			s.set("new", 1)
			s.create("n0", "new")
			s.ready("n0", true)
			for i := range 3 {
				s.wait(time.Minute)
				s.remove(fmt.Sprintf("m%d", i))
				s.set("old", int32(2-i))
				s.set("new", int32(min(3, 2+i)))
				if i < 2 {
					s.create(fmt.Sprintf("n%d", i+1), "new")
					s.ready(fmt.Sprintf("n%d", i+1), true)
				}
			}
		}, ""},
		"surplus in the set": {func(s *history) { s.create("m3", "old") },
			"machine m3 was created: set old has 4 machines, at most 3 allowed"},
		"surplus in the deployment": {func(s *history) {
			s.set("new", 2)
			s.create("n0", "new")
			s.create("n1", "new")
		}, "machine n1 was created: deployment pool has 5 machines, at most 4 allowed"},
		"surplus that an old version allowed": {func(s *history) {
			s.deployment(9)
			s.set("old", 9)
			s.deployment(3)
			s.set("old", 3)
			s.wait(2 * time.Minute)
			s.create("m3", "old")
		}, "set old has 4 machines, at most 3 allowed"},
		"surplus that the version of a moment ago allowed": {func(s *history) {
			s.deployment(9)
			s.set("old", 9)
			s.wait(2 * time.Minute)
			s.deployment(3)
			s.set("old", 3)
			s.wait(time.Second)
			s.create("m3", "old")
		}, ""},
		"too few available": {func(s *history) {
			s.requestDeletion("m0")
			s.requestDeletion("m1")
		}, "machine m1 of set old was deleted: pool has 1 available machines, at least 2 required"},
		"too few available, long after one failed": {func(s *history) {
			s.ready("m0", false)
			s.wait(2 * time.Minute)
			s.requestDeletion("m1")
		}, "pool has 1 available machines, at least 2 required"},
		"too few available, a moment after one failed": {func(s *history) {
			s.ready("m0", false)
			s.wait(time.Second)
			s.requestDeletion("m1")
		}, ""},
		"too few available, after an administrator deleted one": {func(s *history) {
			s.ExpectDeletion("m0")
			s.requestDeletion("m0")
			s.requestDeletion("m1")
		}, ""},
		"administrator deletes all": {func(s *history) {
			for i := range 3 {
				s.ExpectDeletion(fmt.Sprintf("m%d", i))
				s.remove(fmt.Sprintf("m%d", i))
			}
		}, ""},
		"administrator deletes one of too few": {func(s *history) {
			s.ready("m0", false)
			s.wait(2 * time.Minute)
			s.ExpectDeletion("m1")
			s.requestDeletion("m1")
		}, ""},
		"all machines removed while their deployment is being deleted": {func(s *history) {
			d := s.deployment(3)
			d.DeletionTimestamp = &metav1.Time{Time: s.at}
			s.Object(s.at, d)
			for i := range 3 {
				s.remove(fmt.Sprintf("m%d", i))
			}
		}, ""},
		"unavailable machine deleted": {func(s *history) {
			s.requestDeletion("m0")
			s.ready("m1", false)
			s.requestDeletion("m1")
		}, ""},
		"scaled down": {func(s *history) {
			s.deployment(0)
			s.set("old", 0)
			for i := range 3 {
				s.remove(fmt.Sprintf("m%d", i))
			}
		}, ""},
		"all machines removed after their deployment": {func(s *history) {
			s.ObjectGone(s.at, s.deployment(3))
			s.ObjectGone(s.at, s.set("old", 3))
			for i := range 3 {
				s.remove(fmt.Sprintf("m%d", i))
			}
		}, ""},
		"set of a wanted deployment deleted": {func(s *history) {
			s.ObjectGone(s.at, s.set("old", 3))
			s.requestDeletion("m0")
			s.requestDeletion("m1")
		}, "machine m1 of set old was deleted"},
		"machine gone before its instance": {func(s *history) {
			s.requestDeletion("m0")
			s.instance("i-m0", "m0", simcloud.StateShuttingDown)
			s.gone("m0")
		}, "I1: machine m0 (m0) is gone, but its instance i-m0 exists"},
		"node gone before its instance": {func(s *history) {
			s.requestDeletion("m0")
			s.NodeGone(s.at, "m0")
		}, "I1: node m0 is gone, but its instance i-m0 exists"},
		"twin": {func(s *history) { s.instance("i-2", "m0", simcloud.StatePending) }, "I2: machine m0 has two instances"},
		"another instance after the first vanished": {func(s *history) {
			s.ExpectDeletion("i-m0")
			s.instance("i-m0", "m0", simcloud.StateTerminated)
			s.instance("i-2", "m0", simcloud.StatePending)
		}, ""},
		"instance without a machine": {func(s *history) { s.instance("i-2", "", simcloud.StatePending) },
			"I2: instance i-2 was created for no Machine"},
		"instance of a wanted machine deleted": {func(s *history) {
			s.instance("i-m0", "m0", simcloud.StateShuttingDown)
			s.wait(time.Minute)
			s.remove("m0")
		}, "I2: instance i-m0 was deleted, but its machine m0 (m0) is wanted"},
		"instance deleted before the judge learns of the deletion of its machine": {func(s *history) {
			requested := s.at
			s.wait(time.Second)
			s.instance("i-m0", "m0", simcloud.StateShuttingDown)
			s.instance("i-m0", "m0", simcloud.StateTerminated)
			s.machines["m0"].DeletionTimestamp = &metav1.Time{Time: requested}
			s.Object(s.at, s.machines["m0"])
			s.gone("m0")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHistory(3)
			c.report(s)
			breaches, excused := s.Breaches()
			if len(excused) > 0 {
				t.Errorf("got excused breaches %v, want none", excused)
			}
			if c.want == "" && len(breaches) > 0 || c.want != "" &&
				(len(breaches) != 1 || !strings.Contains(breaches[0].String(), c.want)) {
				t.Errorf("got breaches %v, want %q", breaches, c.want)
			}
		})
	}
}

// A process may have sent one more creation request just before the end of the process. So the judge excuses one
// surplus Machine after the end of a process.
func TestEndOfProcessExcusesSurplusMachine(t *testing.T) {
	for _, c := range []struct {
		after   time.Duration
		excused bool
	}{{time.Second, true}, {-time.Second, true}, {time.Minute, false}} {
		s := newHistory(3)
		s.ProcessEnded(s.at.Add(-c.after))
		s.create("m3", "old")
		breaches, excused := s.Breaches()
		if len(breaches)+len(excused) != 1 || (len(excused) == 1) != c.excused {
			t.Errorf("%s after the end: got breaches %v, excused %v; want excused: %t", c.after, breaches, excused, c.excused)
		}
	}
}

func TestJudgeCounts(t *testing.T) {
	s := newHistory(2)
	s.remove("m0")
	s.instance("i-late", "m0", simcloud.StatePending)
	if s.Machines != 2 || s.Instances != 3 || s.LateInstances != 1 {
		t.Errorf("got %d machines, %d instances, %d of them late; want 2, 3, 1", s.Machines, s.Instances, s.LateInstances)
	}
}
