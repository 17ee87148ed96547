package simulation

import (
	"slices"
	"testing"
)

// regressions are plans, and random runs (without a plan), that once failed. A plan numbers effects, so it may come to
// mean something else when the code changes; it must not fail anyway.
var regressions = []struct {
	// name says what went wrong.
	name     string
	scenario string
	seed     uint64
	// cloud are the semantics of its cloud.
	cloud string
	plan  string
	// undisturbed is true for a run in which nothing is to go wrong but what cloud names.
	undisturbed bool
}{
	{"a bootstrap token was left after its deletion had been forbidden once",
		"create-with-token", 1, "", "50:denied", false},
	{"a node that could not be cordoned, since others wrote to it, was not drained either",
		"drain-never-allowed", 1, "", "1:conflict", false},
	{"what a former leader asked of an agent stayed on the node for good",
		"update-by-agent", 4, "", "31:two-leaders", false},
	{"an instance was changed in place with a volume attached, since its drain was over",
		"drain-for-update", 1, "", "80:crash-before", false},
	{"one deletion that was refused left the Node of a machine that was deleted by force",
		"drain-forced", 1, "", "59:denied", false},
	{"a marked machine that was well again was replaced, since it had become so on a clock that was behind",
		"remediate", 1, "", "392:denied-for-long,431:clock-back", false},
	{"a set that its deployment had not ordered yet replaced a failed machine beyond what the deployment may have",
		"autoscaler-roll", 1, "", "279:denied-for-long,313:conflict", false},
	{"a set carried out what a former leader had ordered by an old view of its deployment",
		"autoscaler-roll", 1, "", "303:two-leaders", false},
	{"instances that could not be listed passed for gone, so that old machines went and their tags for collection stayed",
		"migrate-G", 1, "", "378:denied", false},
	{"a former migrator created the old controllers' Lease again after the abort, which locked them out",
		"migrate-K-abort", 1, "", "224:two-leaders", false},
	{"a machine that was deleted at the end of an outage left its Node behind, which had just registered",
		"change-in-target-outage", 3747, "", "", false},
	{"a machine of which only the provider ID was recorded took its instance, whose tags did not show yet, for another's",
		"class-vanishes-in-a-roll", 383413800413, "tags-late", "14:freeze-Node,27:two-leaders", false},
	{"a creation whose recording was not answered did not count, and its instance was taken for gone",
		"remediate", 1, "reads-late", "182:lost", false},
	{"the provider's clock, which was behind, made an orphan of twenty seconds old enough",
		"orphans", 1, "clock-behind", "20:relist-Node", false},
	{"a process with an old view of a class did not know that most instances had been orphaned",
		"machines-lost", 1, "reads-flicker", "344:time-jumps", false},
	{"an orphan that was made while a pass was suspended counted as seen since the pass began",
		"orphans-in-outage", 1026979118669, "clock-behind", "1:time-jumps", false},
	{"a deletion forgot the instance that it had found and could not write down, and left its Node",
		"inline-secret-deleted", 736016899501, "quota-frees-late+reads-flicker", "0:freeze-Node,7:denied-for-long", false},
	{"a health timeout went by another clock, and a process that had slept saw too few nodes that were ill",
		"meltdown", 449069114699, "", "19:restart-9-back,25:time-jumps", false},
	{"a set patched machines in place without asking whether it just had, and panicked since it remembered none",
		"preserve", 7026265, "", "", false},
	{"a machine to be replaced without a surge stayed, and its set deleted each new machine instead",
		"exchange-without-surge", 340862122, "no-host", "", true},
	{"a machine that failed late was still preserved after the time in which all had to be settled",
		"preserve", 341071580, "credentials-expire", "", true},
	{"a fleet that was taken back at its first instance had two, since its credentials were refused at first",
		"create-then-delete", 310233740, "credentials-expire", "", true},
	{"a process whose cache began with an old list of budgets disrupted machines of a fleet that was paused",
		"budget-of-the-broken", 60, "", "", false},
	{"a former leader with an old view of a machine changed it in place after its successor had",
		"in-place-withdrawn", 1, "reports-failed", "14:two-leaders", false},
	{"a process that had just started reported the version of a cached node to the driver, which called the change made",
		"update-by-agent-withdrawn", 4016, "", "", false},
	{"pods that name a silent node were evicted and made again without end", "drain-bound-to-the-node", 1, "reads-stale",
		"", true},
	{"a list that is late by ten minutes, twice, did not get the time to show that an orphan is there, and gone",
		"machines-lost", 81015, "lists-late", "", true},
	{"a machine with a wrong scope lost its Node, since one lookup by tags did not find its instance",
		"scope-changed-before-a-restart", 81022, "reads-flicker", "", true},
	{"a machine with a wrong scope lost its instance, since one lookup by tags did not find it",
		"scope-changed-before-a-restart", 81043, "reads-flicker", "", true},
	{"an orphan was removed before another installation took it", "orphans", 81008, "credentials-expire", "", true},
	{"an orphan was removed before another installation took it, since its parts were seen unattached", "orphans", 81022,
		"parts-unattached", "", true},
	{"a machine that was to be preserved was replaced before its rollout", "preserve", 81057, "credentials-expire", "",
		true},
	{"a machine whose instance broke was replaced before its rollout", "preserve", 81106, "credentials-expire", "", true},
	{"a set that had been frozen needed the machine without an owner", "overshoot", 950005, "answers-lost", "", true},
	{"a certificate was forged for another machine", "certificates", 55296054, "no-host", "", true},
	{"a certificate was forged for a machine that did not join yet", "certificates", 55297063, "credentials-expire", "",
		true},
	{"a version was withdrawn before its set was made", "update-by-agent", 1354093445, "", "2:restart-9-back", false},
	{"a failed call right after an outage left the bootstrap token of a machine that was deleted",
		"late-in-target-outage", 811280417, "", "", false},
}

// What failed once does not fail again.
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
				run = func() Result { return under.Undisturbed(r.seed, nil) }
			}
			if result := run(); result.Err != nil {
				t.Errorf("scenario %s, seed %d, cloud %q, plan %q: %v", r.scenario, r.seed, r.cloud, r.plan, result.Err)
			}
		})
	}
}

// corruptions are changes of one field that once made the world go wrong. Their effects are numbered as the code was
// then, too.
var corruptions = []struct {
	// name says what went wrong.
	name       string
	scenario   string
	seed       uint64
	corruption string
	// want are what may come of it.
	want []Outcome
}{
	{"an abort deleted a Secret that the migration had not made, and waited for its end",
		"migrate-K-abort", 1, "362:control/Secret/fleet/plain/metadata/labels/machinist.dev~1migration=of-another",
		[]Outcome{Harmless}},
	{"a class whose status was emptied forgot that most instances were orphans, and they were removed",
		"machines-lost", 1, "374:control/MachineClass/fleet/a/status/conditions=emptied",
		[]Outcome{Repaired, Harmless}},
	{"an empty description of an instance was taken for one after a restart",
		"control-outage", 1, "13:control/Machine/fleet/web-2b8fpn8lk-00003/status/instance=emptied",
		[]Outcome{Repaired, Harmless}},
	{"a cloud that denies all was believed about a machine of a class that does not exist",
		"cloud-forgets", 7, "0:control/Machine/fleet/web-2b8fpn8lk-00004/spec/classRef/name=highest",
		[]Outcome{AskedFor, Named}},
}

// What somebody changed once does no harm any more.
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
				t.Errorf("scenario %s, seed %d, corruption %s: %q, %v", c.scenario, c.seed, c.corruption, outcome, err)
			}
		})
	}
}
