package simulation

import (
	"slices"
	"testing"
)

// regressions contains plans, and random runs without a plan, that once failed. A plan contains numbers of effects, so
// its meaning may change with the controllers. None of these runs may fail again.
var regressions = []struct {
	name     string
	scenario string
	seed     uint64
	cloud    string
	plan     string
	// undisturbed means that the run has no faults, only the given cloud semantics.
	undisturbed bool
}{
	{"a pod that was created on an unreachable node was evicted at once instead of after its tolerationSeconds",
		"drain-bound-to-the-node", 9120501, "", "91:machine-silent", false},
	{"a machine broke while maxRetries prevented its replacement",
		"retries-of-failed", 9120501, "", "238:replacement-fails", false},
	{"a bootstrap token was left after its deletion was denied once",
		"create-with-token", 1, "", "50:denied", false},
	{"a node that could not be cordoned because of a conflict was not drained either",
		"drain-never-allowed", 1, "", "1:conflict", false},
	{"a former leader's request to an agent stayed on the node forever",
		"update-by-agent", 4, "", "31:two-leaders", false},
	{"an instance with an attached volume was updated in place because its drain was over",
		"drain-for-update", 1, "", "80:crash-before", false},
	{"one denied deletion left the Node of a force-deleted machine behind",
		"drain-forced", 1, "", "59:denied", false},
	{"a marked machine was replaced although it had recovered, because a clock was behind",
		"remediate", 1, "", "392:denied-for-long,431:clock-back", false},
	{"a set replaced a failed machine beyond the deployment's maximum before the deployment had updated the set",
		"autoscaler-roll", 1, "", "279:denied-for-long,313:conflict", false},
	{"a set followed replicas that a former leader had written from an old view of the deployment",
		"autoscaler-roll", 1, "", "303:two-leaders", false},
	{"instances counted as gone after a failed list, so old machines were deleted and kept their collection tags",
		"migrate-G", 1, "", "378:denied", false},
	{"a former migrator created the old controller's Lease again after the abort and locked the controller out",
		"migrate-K-abort", 1, "", "224:two-leaders", false},
	{"a machine deleted at the end of an outage left its newly registered Node behind",
		"change-in-target-outage", 3747, "", "", false},
	{"a machine with only a recorded provider ID rejected its own instance because the tags were not visible yet",
		"class-vanishes-in-a-roll", 383413800413, "tags-late", "14:freeze-Node,27:two-leaders", false},
	{"an instance counted as gone because the write that recorded its creation got no answer",
		"remediate", 1, "reads-late", "182:lost", false},
	{"an orphan of twenty seconds counted as old enough because the provider's clock was behind",
		"orphans", 1, "clock-behind", "20:relist-Node", false},
	{"a process with an old view of a class did not know that most instances were orphans",
		"machines-lost", 1, "reads-flicker", "344:time-jumps", false},
	{"an orphan created while a pass was suspended counted as seen since the start of the pass",
		"orphans-in-outage", 1026979118669, "clock-behind", "1:time-jumps", false},
	{"a deletion lost an instance that it had found but could not record, and left the Node behind",
		"inline-secret-deleted", 736016899501, "quota-frees-late+reads-flicker", "0:freeze-Node,7:denied-for-long", false},
	{"a health timeout used another clock, and a suspended process saw too few unhealthy nodes",
		"meltdown", 449069114699, "", "19:restart-9-back,26:time-jumps", false},
	{"a new process with an old cache marked a machine, although a conflict showed that the cache was old",
		"meltdown", 449069114699, "", "19:restart-9-back,25:time-jumps", false},
	{"a set patched machines in place without checking its own last patches, and panicked",
		"preserve", 7026265, "", "", false},
	{"a set without surge kept the machine to be replaced and deleted each new machine instead",
		"exchange-without-surge", 340862122, "no-host", "", true},
	{"a machine that failed late was still preserved after the time limit of the run",
		"preserve", 341071580, "credentials-expire", "", true},
	{"a fleet deleted at its first instance had two because the credentials were refused at first",
		"create-then-delete", 310233740, "credentials-expire", "", true},
	{"a process that started with an old list of budgets disrupted machines of a paused fleet",
		"budget-of-the-broken", 60, "", "", false},
	{"a former leader with an old view of a machine updated it in place after its successor did",
		"in-place-withdrawn", 1, "reports-failed", "14:two-leaders", false},
	{"a former leader requested an instance that its successor was refused, and the set moved the machine to another zone",
		"place-roll-on-delete", 660001, "quota-frees-late", "354:two-leaders", false},
	{"a new process passed the version of a cached node to the driver, which then reported the update as done",
		"update-by-agent-withdrawn", 4016, "", "", false},
	{"pods that name a silent node were evicted and created again without end",
		"drain-bound-to-the-node", 1, "reads-stale", "", true},
	{"a run ended before lists that are ten minutes late showed that an orphan exists and then that it is gone",
		"machines-lost", 81015, "lists-late", "", true},
	{"an orphan was removed before another installation adopted it", "orphans", 81008, "credentials-expire", "", true},
	{"an orphan with seemingly unattached parts was removed before another installation adopted it", "orphans", 81022,
		"parts-unattached", "", true},
	{"a machine to be preserved was replaced before its rollout", "preserve", 81057, "credentials-expire", "",
		true},
	{"a machine whose instance broke was replaced before its rollout", "preserve", 81106, "credentials-expire", "", true},
	{"a formerly frozen set needed the machine without an owner", "overshoot", 950005, "answers-lost", "", true},
	{"a certificate was forged for another machine", "certificates", 55296054, "no-host", "", true},
	{"a certificate was forged for a machine that had not joined yet", "certificates", 55297063, "credentials-expire", "",
		true},
	{"a version was withdrawn before its set was created", "update-by-agent", 1354093445, "", "2:restart-9-back", false},
	{"a failed call right after an outage left the bootstrap token of a deleted machine behind",
		"late-in-target-outage", 811280417, "", "", false},
}

// Each of these runs has failed once.
func TestPlansThatOnceFailed(t *testing.T) {
	t.Parallel()
	byName := map[string]Scenario{}
	for _, s := range Scenarios() {
		byName[s.Name] = s
	}
	for _, r := range regressions {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			p, err := byName[r.scenario].Prepare(Scheme())
			if err != nil {
				t.Fatal(err)
			}
			plan, err := ParsePlan(r.plan)
			if err != nil {
				t.Fatal(err)
			}
			habits, err := ParseHabits(r.cloud)
			if err != nil {
				t.Fatal(err)
			}
			under := p.Under(habits)
			run := func() Result { return under.Run(r.seed, plan, nil) }
			if r.undisturbed {
				run = func() Result { return under.RunWithoutFaults(r.seed, nil) }
			}
			if result := run(); result.Err != nil {
				t.Errorf("scenario %s, seed %d, cloud %q, plan %q: %v", r.scenario, r.seed, r.cloud, r.plan, result.Err)
			}
		})
	}
}

// corruptions contains changes of one field that once broke a rule. After a change of the controllers, the number of an
// effect may refer to a different effect.
var corruptions = []struct {
	name       string
	scenario   string
	seed       uint64
	corruption string
	want       []Outcome
}{
	{"orphans that were most instances were removed after the status of the class was emptied",
		"machines-lost", 1, "374:control/MachineClass/fleet/a/status/conditions=emptied",
		[]Outcome{OutcomeRepaired, OutcomeHarmless}},
	{"an empty status.instance counted as a valid instance after a restart",
		"control-outage", 1, "13:control/Machine/fleet/web-2b8fpn8lk-00003/status/instance=emptied",
		[]Outcome{OutcomeRepaired, OutcomeHarmless}},
	{"a machine without the record of its configuration claimed to match a later spec", "exchange", 77,
		"6:control/Machine/fleet/web-2b8fpn8lk-00002/status/applied=dropped", []Outcome{OutcomeRepaired, OutcomeNamed}},
	{"a cloud that forgets all instances was trusted for a machine whose class does not exist",
		"cloud-forgets", 7, "0:control/Machine/fleet/web-2b8fpn8lk-00004/spec/classRef/name=highest",
		[]Outcome{OutcomeAskedFor, OutcomeNamed}},
	{"a deployment released a set that had lost its labels, and created all its machines again",
		"migrate-A", 777001, "end:control/MachineSet/fleet/web-xc6ktfbc8/metadata/labels=emptied",
		[]Outcome{OutcomeRepaired}},
	{"a machine whose recorded instance was emptied could not join and lost its instance",
		"incident-addresses-come-late", 9120501,
		"52:control/Machine/fleet/web-m2pklr97x-00002/status/instance=emptied",
		[]Outcome{OutcomeRepaired, OutcomeHarmless}},
	{"a deployment released a set whose machines never joined, and created more of them than the limit",
		"rollout-never-joins", 777001, "161:control/MachineSet/fleet/web-p2lnnkn6s/metadata/labels=dropped",
		[]Outcome{OutcomeRepaired, OutcomeHarmless}},
	{"a deployment adopted a set of other machines that had got its labels, and deleted a machine",
		"migrate-K", 777001, "726:control/MachineSet/fleet/alone/metadata/labels=of-another",
		[]Outcome{OutcomeRepaired, OutcomeHarmless}},
}

// Each of these corruptions once broke a rule.
func TestCorruptionsThatOnceFailed(t *testing.T) {
	t.Parallel()
	byName := map[string]Scenario{}
	for _, s := range Scenarios() {
		byName[s.Name] = s
	}
	for _, c := range corruptions {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, err := byName[c.scenario].Prepare(Scheme())
			if err != nil {
				t.Fatal(err)
			}
			corruption, err := ParseCorruption(c.corruption)
			if err != nil {
				t.Fatal(err)
			}
			if outcome, err := p.Corrupt(c.seed, corruption, nil); err != nil || !slices.Contains(c.want, outcome) {
				t.Errorf("scenario %s, seed %d, corruption %s: got outcome %q, error %v, want one of %q", c.scenario,
					c.seed, c.corruption, outcome, err, c.want)
			}
		})
	}
}
