package machineset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

func TestDecide(t *testing.T) {
	mark := func(value string) machineOption { return annotated(v1beta1.AnnotationDeleteMachine, value) }
	for _, test := range []struct {
		name  string
		state State
		want  string
	}{
		{"as many as wanted", stateOf(aSet(2), several("m", 2, up)...), "settled"},
		{"too few", stateOf(aSet(5), several("m", 2, up)...), "create 3"},
		{"none yet", stateOf(aSet(50)), "create 50"},
		{"machines being deleted do not count as live", stateOf(aSet(2), newMachine("a", up), newMachine("b", up, leaving)),
			"create 1"},
		{"too many", stateOf(aSet(1), newMachine("old", up, created(3*time.Hour)), newMachine("new", up)), "delete old"},
		{"to none", stateOf(aSet(0), several("m", 2, up)...), "delete m0 m1"},
		{"too many, one being deleted already",
			stateOf(aSet(1), newMachine("a", up), newMachine("b", up, leaving)), "settled"},

		{"adopts before it creates", stateOf(aSet(2), newMachine("a", up), newMachine("o", up, abandoned)), "adopt o"},
		{"adopts and creates the rest", stateOf(aSet(3), newMachine("a", up), newMachine("o", up, abandoned)),
			"adopt o; create 1"},
		{"adopts the best orphan", stateOf(aSet(1), newMachine("x", broken, abandoned), newMachine("y", up, abandoned)),
			"adopt y; leave (EnoughReplicas) x"},
		{"adopts no machine beyond replicas", stateOf(aSet(1), newMachine("a", up), newMachine("o", up, abandoned)),
			"leave (EnoughReplicas) o"},
		{"a set with a surplus adopts no machine", stateOf(aSet(0), newMachine("a", up), newMachine("o", up, abandoned)),
			"delete a; leave (EnoughReplicas) o"},
		{"a set being deleted neither adopts nor creates", stateOf(aSet(3, beingDeleted), newMachine("a", up),
			newMachine("o", up, abandoned)), "leave (SetDeleting) o"},
		{"a set being deleted deletes nothing", stateOf(aSet(0, beingDeleted), newMachine("a", up)), "settled"},

		{"a machine that no longer matches is released and counts until then",
			stateOf(aSet(2), newMachine("a", up), newMachine("b", up, otherLabels)), "release b"},
		{"a machine being released is not surplus", stateOf(aSet(1), newMachine("a", up), newMachine("b", up, otherLabels)),
			"release b"},
		{"one machine being released and another missing",
			stateOf(aSet(3), newMachine("a", up), newMachine("b", up, otherLabels)),
			"release b; create 1"},
		{"a machine that no longer matches and is being deleted is left alone",
			stateOf(aSet(1), newMachine("a", up), newMachine("b", up, otherLabels, leaving)), "settled"},

		{"a frozen set creates nothing", stateOf(aSet(3, frozen), newMachine("a", up)), "but FrozenByLabel"},
		{"a frozen set deletes", stateOf(aSet(0, frozen), newMachine("a", up)), "delete a; but FrozenByLabel"},
		{"a frozen set does not replace", stateOf(aSet(1, frozen), newMachine("a", broken)), "but FrozenByLabel"},
		{"a frozen set adopts", stateOf(aSet(1, frozen), newMachine("a", up, abandoned)), "adopt a; but FrozenByLabel"},
		{"a set with no-create neither creates nor adopts",
			stateOf(aSet(3, withoutCreation), newMachine("a", up), newMachine("o", up, abandoned)),
			"leave (EnoughReplicas) o"},
		{"a set with no-create deletes failed machines",
			stateOf(aSet(1, withoutCreation), newMachine("a", broken)), "replace a"},

		{"a failed machine is replaced", stateOf(aSet(2), newMachine("a", up), newMachine("b", broken)), "replace b"},
		{"the newest failed machine first, within the budget", stateOf(aSet(3), newMachine("a", broken, created(2*time.Hour)),
			newMachine("b", broken, created(time.Minute)), newMachine("c", broken)), "replace b"},
		{"a machine with RemediationRequested is replaced", stateOf(aSet(1), newMachine("a", toRemediate)), "replace a"},
		{"paused machines are not replaced",
			stateOf(aSet(1), newMachine("a", broken, annotated(v1beta1.AnnotationPaused, ""))),
			"settled"},
		{"machines paused by Cluster API's annotation are not replaced",
			stateOf(aSet(1), newMachine("a", broken, annotated(v1beta1.AnnotationClusterAPIPaused, ""))), "settled"},
		{"machines exempt from remediation are not replaced",
			stateOf(aSet(1), newMachine("a", toRemediate, annotated(v1beta1.AnnotationSkipRemediation, ""))), "settled"},
		{"machines of another schema are not replaced", stateOf(aSet(1), newMachine("a", broken, func(m *v1beta1.Machine) {
			m.Labels[v1beta1.LabelTypeVersion] = "v9"
		})), "settled"},
		{"unlaunchable machines are not replaced", stateOf(aSet(1), newMachine("a", misconfigured, markedByHand)), "settled"},
		{"a surplus is deleted before any replacement",
			stateOf(aSet(1), newMachine("a", broken), newMachine("b", up)), "delete a"},
		{"missing machines are created while a failed one is replaced",
			stateOf(aSet(3), newMachine("a", broken), newMachine("b", up)),
			"replace a; create 1"},

		{"two unlaunchable machines do not stop creation", stateOf(aSet(4), several("m", 2, misconfigured)...), "create 2"},
		{"three unlaunchable machines stop creation", stateOf(aSet(4), several("m", 3, misconfigured)...),
			"but InvalidConfiguration"},
		// Rule: rejected-launches-keep-remediation.
		{"three unlaunchable machines do not stop replacement",
			stateOf(aSet(4), append(several("m", 3, misconfigured), newMachine("x", broken))...), "replace x"},
		{"they do not stop replacement of unhealthy machines, within the budget",
			stateOf(aSet(5), append(several("m", 3, misconfigured), several("x", 2, toRemediate)...)...), "replace x0"},
		{"they do not stop replacement of vanished machines, which are not created again",
			stateOf(aSet(6), append(several("m", 3, misconfigured), newMachine("x", lost), newMachine("y", lost))...),
			"replace x y; but InvalidConfiguration"},
		{"a template of another schema stops replacement",
			stateOf(aSet(1, func(s *v1beta1.MachineSet) { s.Spec.Template.ObjectMeta.Labels[v1beta1.LabelTypeVersion] = "v9" }),
				newMachine("x", broken)), "update x"},
		{"unlaunchable machines of another configuration do not count",
			stateOf(aSet(4), several("m", 3, misconfigured, func(m *v1beta1.Machine) {
				m.Spec.Version = "v1.36.0"
			})...), "create 1"},
		{"unlaunchable machines being deleted do not count",
			stateOf(aSet(3), several("m", 3, misconfigured, leaving)...), "create 3"},

		{"a recent delete mark of the autoscaler stays",
			stateOf(aSet(1), newMachine("a", up, mark(autoscalerValue(5*time.Minute)))),
			"wait 10m0s"},
		{"a stale delete mark of the autoscaler is removed",
			stateOf(aSet(1), newMachine("a", up, mark(autoscalerValue(16*time.Minute)))), "update a"},
		{"a delete mark set by hand stays", stateOf(aSet(1), newMachine("a", up, mark("true"))), "settled"},
		{"a delete mark with a date set by hand stays",
			stateOf(aSet(1), newMachine("a", up, mark("2020-01-01 00:00:00 +0000 UTC"))), "settled"},
		{"a stale delete mark counts in a scale-down", stateOf(aSet(1), newMachine("a", up, mark(autoscalerValue(time.Hour))),
			newMachine("b", up, created(9*time.Hour))), "delete a"},

		{"available after minReadySeconds", stateOf(aSet(2, minReady(60)), newMachine("a", readyFor(50*time.Second)),
			newMachine("b", readyFor(20*time.Second))), "wait 10s"},
		{"an empty selector", stateOf(aSet(3, func(s *v1beta1.MachineSet) { s.Spec.Selector = metav1.LabelSelector{} })),
			"but InvalidSelector"},
		{"a selector that the template does not match",
			stateOf(aSet(3, func(s *v1beta1.MachineSet) { s.Spec.Template.ObjectMeta.Labels = nil })), "but InvalidSelector"},
		{"a selector that cannot be parsed", stateOf(aSet(3, func(s *v1beta1.MachineSet) {
			s.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Nonsense"}}
		})), "but InvalidSelector"},
		{"a selector by a label that machines get later", stateOf(aSet(3, func(s *v1beta1.MachineSet) {
			s.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: v1beta1.LabelProvider,
				Operator: metav1.LabelSelectorOpDoesNotExist}}
		})), "but InvalidSelector"},
		// Rule: admitted-bad-object-harmless.
		{"a template that preserves its machines until a time",
			stateOf(aSet(3, templateAnnotated(v1beta1.AnnotationPreservedUntil)), newMachine("a", up)),
			"but InvalidConfiguration"},
		{"a template that requests remediation of its machines",
			stateOf(aSet(3, templateAnnotated(v1beta1.AnnotationRemediate)), newMachine("a", up)), "but InvalidConfiguration"},
		{"a template of another provider", stateOf(aSet(3, func(s *v1beta1.MachineSet) {
			s.Spec.Template.ObjectMeta.Labels[v1beta1.LabelProvider] = "another"
		}), newMachine("a", up)), "but InvalidConfiguration"},
		{"a template with the taint of outdated nodes", stateOf(aSet(3, func(s *v1beta1.MachineSet) {
			s.Spec.Template.Spec.Node.Taints = []corev1.Taint{{Key: v1beta1.NodeTaintOutdated,
				Effect: corev1.TaintEffectNoSchedule}}
		})), "but InvalidConfiguration"},
		{"negative replicas", stateOf(aSet(-1), newMachine("a", up)), "but InvalidConfiguration"},
		{"too many replicas", stateOf(aSet(1<<31-1), newMachine("a", up)), "but InvalidConfiguration"},
		{"a template of another schema",
			stateOf(aSet(1, func(s *v1beta1.MachineSet) {
				s.Spec.Template.ObjectMeta.Labels[v1beta1.LabelTypeVersion] = "v9"
			})), "but UnknownTypeVersion"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Decide(test.state).String(); got != test.want {
				t.Errorf("\n got: %s\nwant: %s", got, test.want)
			}
		})
	}
}

func TestDecideFollowsRejectionsAndFailures(t *testing.T) {
	with := func(s State, change func(*State)) State { change(&s); return s }
	failing := stateOf(aSet(2), newMachine("a", broken), newMachine("b", broken, created(time.Minute)))
	for _, test := range []struct {
		name  string
		state State
		want  string
	}{
		{"creation backs off", with(stateOf(aSet(2)), func(s *State) {
			s.NextCreation, s.CreationFailure = epoch.Add(time.Second), ConditionReason{v1beta1.ReasonMachineCreateFailed, "quota"}
		}), "but MachineCreateFailed; wait 1s"},
		{"no replacement while creation backs off", with(failing, func(s *State) { s.NextCreation = epoch.Add(time.Second) }),
			"wait 1s"},
		{"replacement backs off", with(failing, func(s *State) { s.NextRemediation = epoch.Add(time.Minute) }),
			"back off; wait 1m0s"},
		{"the budget is used up", with(failing, func(s *State) { s.InFlight = 1 }), "settled"},
		{"a larger budget", with(failing, func(s *State) { s.MaxInFlight = 5 }), "replace b a"},
		{"a budget used by other sets", with(failing, func(s *State) { s.MaxInFlight, s.InFlight = 5, 4 }), "replace b"},
		{"a budget of 0", with(failing, func(s *State) { s.MaxInFlight = 0 }), "settled"},
		{"the process may not create", with(stateOf(aSet(1)), func(s *State) {
			s.StopReason = ConditionReason{v1beta1.ReasonControlPlaneUnreachable, ""}
		}), "but ControlPlaneUnreachable; wait 10s"},
		{"the process may not replace", with(failing, func(s *State) {
			s.StopReason = ConditionReason{v1beta1.ReasonControlPlaneUnreachable, ""}
		}), "but ControlPlaneUnreachable; wait 10s"},
		{"a stop is not reported if there is nothing to do", with(stateOf(aSet(1), newMachine("a", up)), func(s *State) {
			s.StopReason = ConditionReason{v1beta1.ReasonControlPlaneUnreachable, ""}
		}), "settled"},
		{"the ceiling", stateOf(aSet(3), several("gone", 14, leaving)...), "create 2; but TooManyMachines"},
		{"above the ceiling", stateOf(aSet(3), several("gone", 20, leaving)...), "but TooManyMachines"},
		{"the ceiling counts surge", with(stateOf(aSet(3), several("gone", 14, leaving)...), func(s *State) { s.Surge = 1 }),
			"create 3"},
		{"the ceiling follows status.replicas", with(stateOf(aSet(3), several("gone", 14, leaving)...), func(s *State) {
			s.Set.Status.Replicas = 10
		}), "create 3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Decide(test.state).String(); got != test.want {
				t.Errorf("\n got: %s\nwant: %s", got, test.want)
			}
		})
	}
}

// Rule vanished-replaced-at-once: a used-up budget does not delay the replacement of a vanished machine. A delay begins
// only when the instance of a replacement vanishes too.
func TestVanishedMachinesAreReplacedAtOnce(t *testing.T) {
	with := func(s State, change func(*State)) State { change(&s); return s }
	preempted := stateOf(aSet(5), newMachine("a", lost), newMachine("b", lost), newMachine("c", lost),
		newMachine("d", broken), newMachine("e", toRemediate))
	again := func(names ...string) func(*State) {
		return func(s *State) { s.LostReplacements, s.NextLost = names, epoch.Add(time.Minute) }
	}
	for _, test := range []struct {
		name  string
		state State
		want  string
	}{
		{"together with a failed machine within the budget", preempted, "replace a b c d"},
		{"when the budget is used up", with(preempted, func(s *State) { s.InFlight = 1 }), "replace a b c"},
		{"when the budget is exceeded", with(preempted, func(s *State) { s.InFlight = 9 }), "replace a b c"},
		{"while the replacement of failed machines backs off", with(preempted, func(s *State) {
			s.NextRemediation = epoch.Add(time.Minute)
		}), "replace a b c; back off; wait 1m0s"},
		{"except replacements of vanished machines that vanished as well", with(preempted, again("a", "b")),
			"replace c d; back off; wait 1m0s"},
		{"including those whose backoff is over",
			with(preempted, func(s *State) { again("a")(s); s.NextLost = epoch }), "replace a b c d"},
		{"not with a budget of 0", with(preempted, func(s *State) { s.MaxInFlight = 0 }), "settled"},
		{"not while the set is frozen", with(preempted, func(s *State) { s.Set = aSet(5, frozen) }), "but FrozenByLabel"},
		{"not while a cluster is unreachable", with(preempted, func(s *State) {
			s.StopReason = ConditionReason{v1beta1.ReasonControlPlaneUnreachable, ""}
		}), "but ControlPlaneUnreachable; wait 10s"},
		{"not while the API rejects machines", with(preempted, func(s *State) { s.NextCreation = epoch.Add(time.Second) }),
			"wait 1s"},
		{"not if they are paused or exempt", stateOf(aSet(2), newMachine("a", lost, annotated(v1beta1.AnnotationPaused, "")),
			newMachine("b", lost, annotated(v1beta1.AnnotationSkipRemediation, ""))), "settled"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Decide(test.state).String(); got != test.want {
				t.Errorf("\n got: %s\nwant: %s", got, test.want)
			}
		})
	}
}

func TestDecideReportsWhyCreationIsBlocked(t *testing.T) {
	p := Decide(stateOf(aSet(9), several("m", 5, misconfigured)...))
	const want = "Machines m0, m1, m2 and 2 more cannot be launched, so no more are created with the same configuration: InvalidConfiguration: InvalidConfiguration happened"
	if p.CreationBlocked.Message != want {
		t.Errorf("got %q, want %q", p.CreationBlocked.Message, want)
	}
}

func TestPlanReportsWhetherVictimsWereChosen(t *testing.T) {
	if p := Decide(stateOf(aSet(0), several("m", 3, up)...)); p.Chosen {
		t.Error("all machines are deleted, and the plan reports a choice")
	}
	if p := Decide(stateOf(aSet(1), several("m", 3, up)...)); !p.Chosen {
		t.Error("two of three machines are deleted, and the plan reports no choice")
	}
}

// Rule: deletion-order-of-machines.
func TestDeletionOrder(t *testing.T) {
	priority := func(value string) machineOption { return annotated(v1beta1.AnnotationDeletePriority, value) }
	machines := []*v1beta1.Machine{
		newMachine("01-marked", up, annotated(v1beta1.AnnotationDeleteMachine, "")),
		newMachine("02-failed", broken),
		newMachine("03-remediated", toRemediate, created(time.Minute)),
		newMachine("04-unlaunched"),
		newMachine("05-unhealthy", unhealthy, priority("9")),
		newMachine("06-priority-1", up, priority("1")),
		newMachine("07-priority-2-not-ready", notReady, priority("2")),
		newMachine("08-priority-2", up, priority("2")),
		newMachine("09-not-ready", notReady),
		newMachine("10-provisioned", launched, created(time.Minute)),
		newMachine("11-oldest", up, created(3*time.Hour)),
		newMachine("12-malformed-priority-is-the-default", up, created(2*time.Hour), priority("soon")),
		newMachine("13-tie-a", up),
		newMachine("13-tie-b", up),
		newMachine("14-youngest", up, created(time.Minute)),
		newMachine("15-priority-4", up, priority("4"), created(9*time.Hour)),
	}
	var want []string
	for _, m := range machines {
		want = append(want, m.Name)
	}
	slices.Reverse(machines)
	var got []string
	for _, m := range machinestate.DeletionOrder(machines, v1beta1.DeleteOldest, 1) {
		got = append(got, m.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("\n got: %s\nwant: %s", strings.Join(got, " "), strings.Join(want, " "))
	}
}

// Rule: deletion-order-of-machines.
func TestDeletePolicies(t *testing.T) {
	machines := []*v1beta1.Machine{newMachine("old", up, created(3*time.Hour)), newMachine("new", up, created(time.Hour)),
		newMachine("middle", up, created(2*time.Hour))}
	order := func(policy v1beta1.DeletePolicy, generation int64) string {
		var names []string
		for _, m := range machinestate.DeletionOrder(machines, policy, generation) {
			names = append(names, m.Name)
		}
		return strings.Join(names, " ")
	}
	if got := order(v1beta1.DeleteOldest, 1); got != "old middle new" {
		t.Errorf("Oldest: %s", got)
	}
	if got := order(v1beta1.DeleteNewest, 1); got != "new middle old" {
		t.Errorf("Newest: %s", got)
	}
	first := map[string]bool{}
	for generation := range int64(50) {
		once := order(v1beta1.DeleteRandom, generation)
		if again := order(v1beta1.DeleteRandom, generation); again != once {
			t.Fatalf("Random gives two orders for one generation: %q, %q", once, again)
		}
		first[strings.Fields(once)[0]] = true
	}
	if len(first) != 3 {
		t.Errorf("in 50 generations, Random began only with %v", first)
	}
}

// Rule: victims-from-fresh-view.
func TestAutoscalerDeleteAnnotation(t *testing.T) {
	for value, want := range map[string]bool{
		"2026-08-01 11:44:00.123456789 +0000 UTC m=+86400.000000001": true,
		"2026-08-01 13:44:00.1 +0200 CEST m=+0.000000001":            true,
		"2026-08-01 08:44:00 -0300 -03 m=+1.5":                       true,
		"2026-08-01 11:44:00.123456789 +0000 UTC m=-12.000000001":    true,
		"": false, "true": false, "yes please": false,
		"2026-08-01T11:44:00Z": false, "2026-08-01 11:44:00.123456789 +0000 UTC": false,
		"tomorrow m=+1.0": false, "2026-08-01 11:44:00 +0000 UTC m=+1.0 (mine)": false,
	} {
		marked, got := autoscalerDeleteAnnotation(newMachine("a", annotated(v1beta1.AnnotationDeleteMachine, value)))
		if got != want {
			t.Errorf("%q is the autoscaler's: got %v, want %v", value, got, want)
		}
		if got && marked.UTC().Format("2006-01-02 15:04") != "2026-08-01 11:44" {
			t.Errorf("%q: read as %s", value, marked.UTC())
		}
	}
	if _, ok := autoscalerDeleteAnnotation(newMachine("a")); ok {
		t.Error("a machine without the annotation has one")
	}
	now := time.Now()
	marked, ok := autoscalerDeleteAnnotation(newMachine("a", annotated(v1beta1.AnnotationDeleteMachine, now.String())))
	if !ok || !marked.Equal(now) {
		t.Errorf("the current time as Go prints it, %q, is read as %v, %v", now.String(), marked, ok)
	}
}

func templateAnnotated(key string) func(*v1beta1.MachineSet) {
	return func(s *v1beta1.MachineSet) { s.Spec.Template.ObjectMeta.Annotations = map[string]string{key: "x"} }
}

// BenchmarkSettledPass measures the cost for each machine, on which the spacing in watches.go is based.
func BenchmarkSettledPass(b *testing.B) {
	for _, n := range []int{100, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := stateOf(aSet(int32(n)), several("m", n, up)...)
			for b.Loop() {
				Resume(s.Machines, n, 0, s.Now).InFlight(s.Machines)
				Status(s, Decide(s), ConditionReason{})
			}
		})
	}
}

func BenchmarkScaleDown(b *testing.B) {
	for _, n := range []int{100, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := stateOf(aSet(int32(n/2)), several("m", n, up)...)
			for b.Loop() {
				Decide(s)
			}
		})
	}
}
