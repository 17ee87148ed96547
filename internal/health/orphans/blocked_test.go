package orphans

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/health/orphans/ledger"
	"machinist.dev/machinist/pkg/provider"
)

// Rule: most-orphaned-needs-confirmation.
func TestMostOrphanedInstancesAreBlocked(t *testing.T) {
	for _, tc := range []struct {
		name              string
		orphans, retained int
		change            func(*State)
		want              Outcome
	}{
		{"one of one", 1, 0, nil, OutcomeDelete},
		{"two of two", 2, 0, nil, OutcomeDelete},
		{"two of three", 2, 1, nil, OutcomeDelete},
		{"three of three", 3, 0, nil, OutcomeMostOrphaned},
		{"three of six", 3, 3, nil, OutcomeMostOrphaned},
		{"three of seven", 3, 4, nil, OutcomeDelete},
		{"ten, which ten others replaced", 10, 10, nil, OutcomeMostOrphaned},
		{"ten of ten a pass ago, and twenty were created since", 10, 20, func(s *State) {
			s.PreviousInstances = map[string]int{"": 10, "ns": 10}
		}, OutcomeMostOrphaned},
		{"ten of thirty a pass ago", 10, 20, func(s *State) { s.PreviousInstances = map[string]int{"": 30, "ns": 30} }, OutcomeDelete},
		{"three of three, and too young", 3, 0, func(s *State) { s.Now = ago(time.Hour) },
			OutcomeMostOrphaned},
		{"three of three, right after an outage", 3, 0, func(s *State) { s.StableSince = s.Now }, OutcomeMostOrphaned},
		{"few now, and most when they lost their Machines", 4, 20, func(s *State) {
			for id, observation := range s.PreviousObservations {
				observation.IsBlocked = true
				s.PreviousObservations[id] = observation
			}
		}, OutcomeMostOrphaned},
		{"few now, and the class reports that they were most", 4, 20, func(s *State) {
			s.IsBlocked = true
		}, OutcomeMostOrphaned},
		{"most of a namespace, and few in total", 4, 20, func(s *State) {
			for i := range s.Instances {
				if s.LiveMachines[s.Instances[i].MachineUID] {
					s.Instances[i].MachineKey = fmt.Sprintf("elsewhere/m-%d", i)
				}
			}
		}, OutcomeMostOrphaned},
		{"most of them are being terminated", 4, 0, func(s *State) {
			s.Instances[0].State, s.Instances[1].State = provider.StateTerminating, provider.StateTerminating
		}, OutcomeDelete},
		{"an administrator confirms", 10, 0, func(s *State) {
			s.ConfirmedIDs = map[string]bool{}
			for _, in := range s.Instances {
				s.ConfirmedIDs[in.ProviderID] = true
			}
		}, OutcomeDelete},
		{"orphans are only reported", 10, 0, func(s *State) { s.ReportOnly = true }, OutcomeReport},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := State{Rules: rules(), Now: now, StableSince: ago(time.Hour), ProviderIDs: map[types.UID]string{},
				LiveMachines: map[types.UID]bool{}, PreviousObservations: Observations{}}
			s.MaxDeletes = 100
			orphaned := map[string]bool{}
			for n := range tc.orphans {
				in := lost(n)
				s.Instances = append(s.Instances, in)
				s.PreviousObservations[in.ProviderID] = Observation{Machine: in.MachineUID, FirstSeen: ago(30 * time.Minute)}
				orphaned[in.ProviderID] = true
			}
			for n := range tc.retained {
				s.Instances = append(s.Instances, owned(&s, 100+n))
			}
			if tc.change != nil {
				tc.change(&s)
			}
			plan := Decide(s)
			for _, d := range plan.Decisions {
				if orphaned[d.ID] && d.Outcome != tc.want {
					t.Errorf("decided %s about %s, want %s", d.Outcome, d.ID, tc.want)
				}
				if orphaned[d.ID] && tc.want == OutcomeMostOrphaned && !plan.Observations[d.ID].IsBlocked && !s.IsBlocked {
					t.Errorf("does not remember that %s was one of most instances", d.ID)
				}
			}
			if plan.Instances[""] > tc.orphans+tc.retained {
				t.Errorf("counted %v", plan.Instances)
			}
		})
	}
}

// A list may still contain instances that were removed on purpose.
//
// Rule: most-orphaned-needs-confirmation.
func TestOrphansSeenOnceDoNotCountAsMost(t *testing.T) {
	s := State{Rules: rules(), Now: now, StableSince: ago(time.Hour), ProviderIDs: map[types.UID]string{},
		LiveMachines: map[types.UID]bool{}, PreviousObservations: seen(lost(0), lost(1))}
	for n := range 10 {
		s.Instances = append(s.Instances, lost(n))
	}
	for _, d := range Decide(s).Decisions {
		if _, again := s.PreviousObservations[d.ID]; again != (d.Outcome == OutcomeDelete) {
			t.Errorf("decided %s about %s", d.Outcome, d.ID)
		}
	}
}

// Rule: ready-orphan-needs-confirmation.
func TestOrphanWithReadyNodeWaitsForConfirmation(t *testing.T) {
	in := lost(1)
	s := State{
		Rules: rules(), Now: now, StableSince: ago(time.Hour), LiveMachines: map[types.UID]bool{},
		PreviousObservations: seen(in),
		Instances:            []provider.Instance{in},
		NodeReady:            map[string]string{in.ProviderID: "node"},
	}
	if d := Decide(s).Decisions[0]; d.Outcome != OutcomeNodeReady {
		t.Errorf("decided %s", d.Outcome)
	}
	s.ConfirmedIDs = map[string]bool{in.ProviderID: true}
	if d := Decide(s).Decisions[0]; d.Outcome != OutcomeDelete {
		t.Errorf("decided %s after a confirmation", d.Outcome)
	}
}

// Rule: person-confirms-removal.
func TestConfirmationIsAtMostOneDayAhead(t *testing.T) {
	for value, want := range map[string]bool{
		"": false, "true": false, "2026-03-01": false, "2026-03-01T13:00:00Z": true, "2026-03-01T14:00:00+01:00": true,
		"2026-03-01T12:00:00Z": false, "2026-03-02T12:00:00Z": true, "2026-03-02T12:00:01Z": false,
		"9999-01-01T00:00:00Z": false,
	} {
		class := &v1beta1.MachineClass{}
		class.Annotations = map[string]string{v1beta1.AnnotationRemoveOrphansUntil: value}
		if confirmed, invalid := confirmation(class, now); confirmed != want || (invalid == "") != want {
			t.Errorf("%q: confirmed %t, invalid %q", value, confirmed, invalid)
		}
	}
	if confirmed, invalid := confirmation(&v1beta1.MachineClass{}, now); confirmed || invalid != "" {
		t.Errorf("without an annotation: confirmed %t, invalid %q", confirmed, invalid)
	}
}

// Rules: most-orphaned-needs-confirmation, person-confirms-removal.
func TestMostOrphanedInstancesStayUntilConfirmed(t *testing.T) {
	w := newTestCollector(t)
	var lost []provider.Instance
	for n := range 4 {
		lost = append(lost, w.createOrphan(n))
	}
	for n := range 4 {
		m := w.machine(fmt.Sprintf("kept-%d", n), "small", fmt.Sprintf("sim:///kept-%d", n))
		w.createOrphan(10+n, func(in *provider.Instance) { in.MachineUID, in.ProviderID = m.UID, m.Spec.ProviderID })
	}
	all := w.instances()
	w.reconcile()
	w.wantBlocked("small", "", "")
	w.pass()
	w.want(all...)
	w.wantBlocked("small", v1beta1.ReasonMostInstancesOrphaned, "4 instances have no Machine")
	w.wantEvents("Warning OrphanRemovalBlocked small: Instances without a Machine are not removed until an administrator confirms, " +
		"see the condition OrphanRemovalBlocked of the class: " +
		enumerate([]string{lost[0].ProviderID, lost[1].ProviderID, lost[2].ProviderID, lost[3].ProviderID}))
	if n := w.metric("machinist_orphans_blocked", v1beta1.ReasonMostInstancesOrphaned); n != 4 {
		t.Errorf("the metric is %v", n)
	}

	// New Machines are created, so that less than half of the instances are orphans. The process is restarted, so that
	// it knows only stored data.
	for n := range 12 {
		m := w.machine(fmt.Sprintf("new-%d", n), "small", fmt.Sprintf("sim:///new-%d", n))
		w.createOrphan(20+n, func(in *provider.Instance) { in.MachineUID, in.ProviderID = m.UID, m.Spec.ProviderID })
	}
	all = w.instances()
	w.collector.state = state{}
	w.reconcile()
	w.pass()
	w.pass()
	w.want(all...)
	w.wantBlocked("small", v1beta1.ReasonMostInstancesOrphaned, lost[3].ProviderID)

	w.confirm("small", "for ever")
	w.pass()
	w.want(all...)
	w.wantBlocked("small", v1beta1.ReasonMostInstancesOrphaned, `its value "for ever" is not a time`)
	w.confirm("small", w.clock.Now().Add(time.Hour).Format(time.RFC3339))
	w.pass()
	w.want(all[4:]...)
	w.pass()
	w.wantBlocked("small", v1beta1.ReasonMostInstancesOrphaned, "") // The list may have been incomplete.
	w.pass()
	w.wantBlocked("small", "", "")
	if n := w.metric("machinist_orphans_blocked", v1beta1.ReasonMostInstancesOrphaned); n != 0 || w.cloud.DeleteCount() != 4 {
		t.Errorf("the metric is %v, %d deletions were sent", n, w.cloud.DeleteCount())
	}
}

// A user of one namespace creates a class with which the instances of another namespace are found, and confirms their
// removal on this class. This confirmation must have no effect. Only a class in the namespace of the instances'
// Machines may confirm their removal.
//
// Rule: confirmation-within-namespace.
func TestAttackClassConfirmsRemovalInOtherNamespace(t *testing.T) {
	for name, spec := range map[string]string{"in one list": `{"a":1}`, "in a list of its own": `{"a":2}`} {
		t.Run(name, func(t *testing.T) {
			w := newTestCollector(t)
			w.collector.Rules.Namespace = ""
			// The name of the attacker's namespace is first in alphabetical order, so the attacker's class is the first
			// one of the scope.
			theirs := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "attacker-"}}
			w.create(theirs)
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: theirs.Name, Name: "c",
				Labels: map[string]string{v1beta1.LabelSecretUse: v1beta1.SecretUseCredentials}},
				StringData: map[string]string{"account": "small"}}
			w.create(secret)
			class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: theirs.Name, Name: "c",
				Annotations: map[string]string{
					v1beta1.AnnotationRemoveOrphansUntil: w.clock.Now().Add(20 * time.Hour).Format(time.RFC3339)}},
				Spec: v1beta1.MachineClassSpec{Provider: w.namespace, ProviderSpec: &runtime.RawExtension{Raw: []byte(spec)},
					CredentialsRef: &v1beta1.LocalRef{Name: "c"}}}
			w.create(class)
			var all []provider.Instance
			for n := range 3 {
				all = append(all, w.createOrphan(n))
			}
			own := w.createOrphan(3, func(in *provider.Instance) { in.MachineKey = theirs.Name + "/m" })
			w.reconcile()
			w.pass()
			w.want(all...) // The attacker's class confirms the removal of the instance of its own namespace.
			w.pass()
			w.want(all...)
			w.wantBlocked("small", v1beta1.ReasonMostInstancesOrphaned, "3 instances have no Machine")
			if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(class), class); err != nil {
				t.Fatal(err)
			}
			if reason := blockedReason(class); reason != "" {
				t.Errorf("the attacker's class reports %s, and %s is gone", reason, own.ProviderID)
			}
			// While the class of the namespace cannot list instances, it is unknown which instances it would find.
			if err := w.api.Delete(t.Context(), w.secret("small")); err != nil {
				t.Fatal(err)
			}
			w.pass()
			w.pass()
			w.want(all...)
			lost := &corev1.Secret{ObjectMeta: w.meta("small"), StringData: map[string]string{"account": "small"}}
			lost.Labels = secret.Labels
			w.create(lost)
			w.confirm("small", w.clock.Now().Add(time.Hour).Format(time.RFC3339))
			w.pass()
			w.want()
		})
	}
}

// Two records show that the removal is blocked: the condition of a class, and the Ledger. If one of these records is
// lost during a restart, the removal must stay blocked.
//
// Rule: most-orphaned-needs-confirmation.
func TestMostOrphanedSurvivesRestart(t *testing.T) {
	for _, test := range []struct {
		name string
		lose func(*testCollector)
	}{
		{"the status of the class is cleared", func(w *testCollector) { w.unblock("small") }},
		{"the ledger is deleted", func(w *testCollector) {
			report := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: ledger.Name}}
			if err := w.api.Delete(w.Context(), report); err != nil {
				t.Fatal(err)
			}
		}},
		{"the status of the class is cleared during a cluster ID mismatch", func(w *testCollector) {
			w.mismatch = errors.New("another cluster id")
			w.pass()
			w.mismatch = nil
			w.unblock("small")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newTestCollector(t)
			w.collector.Ledger = ledger.Store{Client: w.api, Namespace: w.namespace}
			for n := range 4 {
				w.createOrphan(n)
			}
			w.reconcile()
			w.pass()
			w.wantBlocked("small", v1beta1.ReasonMostInstancesOrphaned, "4 instances have no Machine")
			for n := range 12 {
				m := w.machine(fmt.Sprintf("new-%d", n), "small", fmt.Sprintf("sim:///new-%d", n))
				w.createOrphan(20+n, func(in *provider.Instance) {
					in.MachineUID, in.ProviderID = m.UID, m.Spec.ProviderID
				})
			}
			test.lose(w)
			w.collector.state = state{}
			w.reconcile()
			w.pass()
			w.pass()
			w.wantBlocked("small", v1beta1.ReasonMostInstancesOrphaned, "4 instances have no Machine")
			w.confirm("small", w.clock.Now().Add(2*time.Hour).Format(time.RFC3339))
			w.pass()
			if left := w.instances(); len(left) != 12 {
				t.Errorf("%d instances are left of %d", len(left), 4+12)
			}
			w.pass()
			w.pass()
			if page, _ := w.page(); page.MostOrphaned {
				t.Error("the ledger reports most instances as orphaned after they were removed")
			}
		})
	}
}

func TestBlockedConditionUsesSingularForOneInstance(t *testing.T) {
	class := &v1beta1.MachineClass{}
	for _, test := range []struct {
		outcome Outcome
		names   []string
		want    string
	}{
		{OutcomeNodeReady, []string{"a"}, "1 instance has no Machine, and its Node is Ready. The instance is not removed: "},
		{OutcomeNodeReady, []string{"a", "b"}, "2 instances have no Machine, and their Nodes are Ready. The instances are not removed: "},
		{OutcomeMostOrphaned, []string{"a"}, "1 instance has no Machine. Most instances "},
		{OutcomeMostOrphaned, []string{"a", "b"}, "2 instances have no Machine. Most instances "},
	} {
		if got := blockedCondition(class, map[Outcome][]string{test.outcome: test.names},
			time.Now()).Message; !strings.HasPrefix(got, test.want) {
			t.Errorf("%v of %v: %q, want it to begin with %q", test.outcome, test.names, got, test.want)
		}
	}
}
