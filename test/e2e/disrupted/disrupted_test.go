package disrupted

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/chaos/history"
)

var (
	noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	read = noon.Add(time.Minute)
)

type changeLog struct {
	t       *testing.T
	changes []history.Change
}

func (s *changeLog) write(name string, changes ...func(*v1beta1.Machine)) {
	s.t.Helper()
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": name[:1]}}}
	m.Spec.ClassRef = &v1beta1.LocalRef{Name: "small"}
	m.Status.NodeRef, m.Status.Applied = &v1beta1.NodeRef{Name: name}, &v1beta1.AppliedStatus{ClassName: "small"}
	for _, change := range changes {
		change(m)
	}
	value, err := json.Marshal(m)
	if err != nil {
		s.t.Fatal(err)
	}
	s.add(Machines+"default/"+name, value)
}

func (s *changeLog) gone(name string) { s.add(Machines+"default/"+name, nil) }

func (s *changeLog) add(key string, value []byte) {
	s.changes = append(s.changes, history.Change{Key: key, Revision: int64(len(s.changes) + 1), ReadTime: read,
		Value: value})
}

func (s *changeLog) begins() []DisruptionStart {
	s.t.Helper()
	var h History
	for _, c := range s.changes {
		if err := h.Add(c); err != nil {
			s.t.Fatal(err)
		}
	}
	return h.Begins
}

func deleted(m *v1beta1.Machine) { m.DeletionTimestamp = &metav1.Time{Time: noon} }

func large(m *v1beta1.Machine) {
	m.Spec.ClassRef.Name = "large"
	m.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: noon.Add(-time.Hour)}},
		{Time: &metav1.Time{Time: noon}}, {}}
}

func applied(m *v1beta1.Machine) { m.Status.Applied.ClassName = m.Spec.ClassRef.Name }

func refused(m *v1beta1.Machine) {
	m.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionUpToDate, Status: metav1.ConditionFalse}}
}

func withoutNode(m *v1beta1.Machine) { m.Status.NodeRef = nil }

func TestHistoryFindsEachDisruptionOnce(t *testing.T) {
	s := &changeLog{t: t}
	s.write("a-1")
	s.write("b-1")
	s.add(Ours+"machinesets/default/a", []byte(`{"metadata":{"deletionTimestamp":"2026-05-04T12:00:00Z"}}`))
	s.write("a-2", withoutNode)
	s.write("a-2", withoutNode, deleted)
	s.write("a-1", deleted) // 6
	s.write("a-1", deleted, func(m *v1beta1.Machine) { m.Labels["drained"] = "yes" })
	s.write("b-1", large) // 8
	s.write("b-1", large, refused)
	s.write("b-1", large, applied, refused)
	s.write("b-1", large, applied)
	s.gone("a-1")
	s.write("b-1", large, applied, deleted) // 13
	begins := s.begins()
	type found struct {
		machine  string
		revision int64
		machines int
	}
	want := []found{{"a-1", 6, 3}, {"b-1", 8, 3}, {"b-1", 13, 2}}
	if len(begins) != len(want) {
		t.Fatalf("got %d disruptions, want %d: %+v", len(begins), len(want), begins)
	}
	for i, b := range begins {
		if got := (found{b.Machine.Name, b.Revision, len(b.AllMachines)}); got != want[i] || !b.At.Equal(noon) {
			t.Errorf("got %+v at %s, want %+v at %s", got, b.At, want[i], noon)
		}
	}
	s.add(Machines+"default/broken", []byte("{"))
	var h History
	if err := h.Add(s.changes[13]); err == nil || !strings.Contains(err.Error(), "broken at revision 14") {
		t.Errorf("invalid Machine: got error %v, want one that names the key and the revision", err)
	}
}

func TestDisruptionWithoutTimeHasTimeOfRead(t *testing.T) {
	s := &changeLog{t: t}
	s.write("a-1")
	s.write("a-1", large, func(m *v1beta1.Machine) { m.ManagedFields = nil })
	if begins := s.begins(); len(begins) != 1 || !begins[0].At.Equal(read) {
		t.Errorf("got %+v, want one at %s", begins, read)
	}
}

func TestBudgetCheckFindsTooManyDisruptions(t *testing.T) {
	s := &changeLog{t: t}
	for _, name := range []string{"a-1", "a-2", "b-1", "b-2"} {
		s.write(name)
	}
	s.write("a-1", deleted)
	s.write("b-1", deleted)
	s.write("a-2", large)
	s.gone("a-1")
	s.gone("b-1")
	s.write("b-2", deleted)
	begins := s.begins()
	one := func(int) int { return 1 }
	poolA := func(labels map[string]string) bool { return labels["pool"] == "a" }
	for name, test := range map[string]struct {
		budget  Budget
		exceeds []string
	}{
		"one of all":    {Budget{Allowed: one}, []string{"2 of 4", "3 of 4", "2 of 2"}},
		"one of a pool": {Budget{Selects: poolA, Allowed: one}, []string{"2 of 2"}},
		"half":          {Budget{Allowed: func(n int) int { return n / 2 }}, []string{"3 of 4", "2 of 2"}},
		"all":           {Budget{Allowed: func(n int) int { return n }}, nil},
		"none, for some time": {Budget{Allowed: func(int) int { return 0 },
			InForce: func(b DisruptionStart) bool { return b.Revision < 6 }}, []string{"1 of 4"}},
	} {
		t.Run(name, func(t *testing.T) {
			var found []string
			for _, b := range begins {
				if err := test.budget.Check(b); err != nil {
					found = append(found, err.Error())
				}
			}
			if len(found) != len(test.exceeds) {
				t.Fatalf("got %q, want %q", found, test.exceeds)
			}
			for i, text := range test.exceeds {
				if !strings.Contains(found[i], text+" machines") {
					t.Errorf("got %q, want %q", found[i], text)
				}
			}
		})
	}
}
