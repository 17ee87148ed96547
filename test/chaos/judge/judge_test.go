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

// story tells a judge of a deployment "pool" with sets and machines, minute by minute.
type story struct {
	*Judge
	at       time.Time
	machines map[string]*v1beta1.Machine
}

// begin is a pool of so many replicas with one set, which has as many running machines m0, m1 and so on. It may have
// one more, and one less available.
func begin(n int32) *story {
	s := &story{Judge: New(time.Minute), at: time.Date(2031, 5, 7, 12, 0, 0, 0, time.UTC),
		machines: map[string]*v1beta1.Machine{}}
	s.deployment(n)
	s.set("old", n)
	for i := range n {
		s.make(fmt.Sprintf("m%d", i), "old")
		s.ready(fmt.Sprintf("m%d", i), true)
	}
	s.wait(time.Hour)
	return s
}

func (s *story) wait(d time.Duration) { s.at = s.at.Add(d) }

func (s *story) deployment(n int32) *v1beta1.MachineDeployment {
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

func (s *story) set(name string, n int32) *v1beta1.MachineSet {
	set := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name),
		OwnerReferences: owned("MachineDeployment", "pool")}}
	set.Spec.Replicas = &n
	s.Object(s.at, set)
	return set
}

// make makes a machine and its instance.
func (s *story) make(name, set string) {
	s.machines[name] = &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name),
		OwnerReferences: owned("MachineSet", set)}}
	s.Object(s.at, s.machines[name].DeepCopy())
	s.instance("i-"+name, name, simcloud.StateRunning)
}

func (s *story) instance(id, machine string, state simcloud.InstanceState) {
	in := simcloud.Instance{ID: id, Hostname: machine, State: state}
	if machine != "" {
		in.Tags = map[string]string{provider.TagMachineUID: machine}
	}
	s.Instance(s.at, in)
}

func (s *story) ready(name string, ready bool) {
	m := s.machines[name]
	status := metav1.ConditionFalse
	if ready {
		status = metav1.ConditionTrue
	}
	m.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: status}}
	s.Object(s.at, m.DeepCopy())
}

// ask asks a machine to go.
func (s *story) ask(name string) {
	s.machines[name].DeletionTimestamp = &metav1.Time{Time: s.at}
	s.Object(s.at, s.machines[name].DeepCopy())
}

// remove lets a machine go as it should.
func (s *story) remove(name string) {
	s.ask(name)
	s.wait(time.Second)
	s.instance("i-"+name, name, simcloud.StateShuttingDown)
	s.instance("i-"+name, name, simcloud.StateTerminated)
	s.NodeGone(s.at, name)
	s.gone(name)
}

func (s *story) gone(name string) { s.Gone(s.at, s.machines[name]) }

// Each story is reported by what it breaks, or breaks nothing.
func TestTheJudgeFindsWhatIsBrokenAndNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		report func(s *story)
		want   string // a part of the only breach; "" for none
	}{
		"a whole roll": {func(s *story) {
			s.set("new", 1)
			s.make("n0", "new")
			s.ready("n0", true)
			for i := range 3 {
				s.wait(time.Minute)
				s.remove(fmt.Sprintf("m%d", i))
				s.set("old", int32(2-i))
				s.set("new", int32(min(3, 2+i)))
				if i < 2 {
					s.make(fmt.Sprintf("n%d", i+1), "new")
					s.ready(fmt.Sprintf("n%d", i+1), true)
				}
			}
		}, ""},
		"too many in the set": {func(s *story) { s.make("m3", "old") }, "machine m3 was made: set old has 4 of at most 3"},
		"too many in the deployment": {func(s *story) {
			s.set("new", 2)
			s.make("n0", "new")
			s.make("n1", "new")
		}, "machine n1 was made: deployment pool has 5 of at most 4"},
		"too many of what was asked long ago": {func(s *story) {
			s.deployment(9)
			s.set("old", 9)
			s.deployment(3)
			s.set("old", 3)
			s.wait(2 * time.Minute)
			s.make("m3", "old")
		}, "set old has 4 of at most 3"},
		"as many as was asked until a moment ago": {func(s *story) {
			s.deployment(9)
			s.set("old", 9)
			s.wait(2 * time.Minute)
			s.deployment(3)
			s.set("old", 3)
			s.wait(time.Second)
			s.make("m3", "old")
		}, ""},
		"too few available": {func(s *story) {
			s.ask("m0")
			s.ask("m1")
		}, "machine m1 of set old was deleted: pool has 1 available of at least 2"},
		"too few available, long after one failed": {func(s *story) {
			s.ready("m0", false)
			s.wait(2 * time.Minute)
			s.ask("m1")
		}, "pool has 1 available of at least 2"},
		"too few available, a moment after one failed": {func(s *story) {
			s.ready("m0", false)
			s.wait(time.Second)
			s.ask("m1")
		}, ""},
		"too few available, as somebody else deleted one": {func(s *story) {
			s.Others("m0")
			s.ask("m0")
			s.ask("m1")
		}, ""},
		"somebody else deletes all": {func(s *story) {
			for i := range 3 {
				s.Others(fmt.Sprintf("m%d", i))
				s.remove(fmt.Sprintf("m%d", i))
			}
		}, ""},
		"somebody else deletes one of too few": {func(s *story) {
			s.ready("m0", false)
			s.wait(2 * time.Minute)
			s.Others("m1")
			s.ask("m1")
		}, ""},
		"all go before their deployment, which is asked to go": {func(s *story) {
			d := s.deployment(3)
			d.DeletionTimestamp = &metav1.Time{Time: s.at}
			s.Object(s.at, d)
			for i := range 3 {
				s.remove(fmt.Sprintf("m%d", i))
			}
		}, ""},
		"one that is not available is deleted": {func(s *story) {
			s.ask("m0")
			s.ready("m1", false)
			s.ask("m1")
		}, ""},
		"scaled down": {func(s *story) {
			s.deployment(0)
			s.set("old", 0)
			for i := range 3 {
				s.remove(fmt.Sprintf("m%d", i))
			}
		}, ""},
		"all go with their deployment": {func(s *story) {
			s.Gone(s.at, s.deployment(3))
			s.Gone(s.at, s.set("old", 3))
			for i := range 3 {
				s.remove(fmt.Sprintf("m%d", i))
			}
		}, ""},
		"a set is deleted whose deployment is wanted": {func(s *story) {
			s.Gone(s.at, s.set("old", 3))
			s.ask("m0")
			s.ask("m1")
		}, "machine m1 of set old was deleted"},
		"gone before its instance": {func(s *story) {
			s.ask("m0")
			s.instance("i-m0", "m0", simcloud.StateShuttingDown)
			s.gone("m0")
		}, "I1: machine m0 (m0) is gone, its instance i-m0 is not"},
		"a node gone before its instance": {func(s *story) {
			s.ask("m0")
			s.NodeGone(s.at, "m0")
		}, "I1: node m0 is gone, its instance i-m0 is not"},
		"a twin": {func(s *story) { s.instance("i-2", "m0", simcloud.StatePending) }, "I2: machine m0 has two instances"},
		"another instance after the first vanished": {func(s *story) {
			s.Others("i-m0")
			s.instance("i-m0", "m0", simcloud.StateTerminated)
			s.instance("i-2", "m0", simcloud.StatePending)
		}, ""},
		"an instance of nobody": {func(s *story) { s.instance("i-2", "", simcloud.StatePending) },
			"I2: instance i-2 was made for no Machine"},
		"the instance of a wanted machine is deleted": {func(s *story) {
			s.instance("i-m0", "m0", simcloud.StateShuttingDown)
			s.wait(time.Minute)
			s.remove("m0")
		}, "I2: instance i-m0 was deleted, and its machine m0 (m0) is wanted"},
		"the instance is deleted before that of its machine is heard of": {func(s *story) {
			asked := s.at
			s.wait(time.Second)
			s.instance("i-m0", "m0", simcloud.StateShuttingDown)
			s.instance("i-m0", "m0", simcloud.StateTerminated)
			s.machines["m0"].DeletionTimestamp = &metav1.Time{Time: asked}
			s.Object(s.at, s.machines["m0"])
			s.gone("m0")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(3)
			c.report(s)
			broken, excused := s.Breaches()
			if len(excused) > 0 {
				t.Errorf("excused: %v", excused)
			}
			if c.want == "" && len(broken) > 0 || c.want != "" &&
				(len(broken) != 1 || !strings.Contains(broken[0].String(), c.want)) {
				t.Errorf("the judge says %v, want %q", broken, c.want)
			}
		})
	}
}

// A process that ends may have sent one more; nobody else may.
func TestTheEndOfAProcessExcusesOneThatWasSent(t *testing.T) {
	for _, c := range []struct {
		after   time.Duration
		excused bool
	}{{time.Second, true}, {-time.Second, true}, {time.Minute, false}} {
		s := begin(3)
		s.Ended(s.at.Add(-c.after))
		s.make("m3", "old")
		broken, excused := s.Breaches()
		if len(broken)+len(excused) != 1 || (len(excused) == 1) != c.excused {
			t.Errorf("%s after the end: broken %v, excused %v", c.after, broken, excused)
		}
	}
}

func TestTheJudgeCounts(t *testing.T) {
	s := begin(2)
	s.remove("m0")
	s.instance("i-late", "m0", simcloud.StatePending)
	if s.Machines != 2 || s.Instances != 3 || s.Late != 1 {
		t.Errorf("%d machines, %d instances, %d of them late", s.Machines, s.Instances, s.Late)
	}
}
