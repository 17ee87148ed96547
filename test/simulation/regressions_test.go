package simulation

import (
	"slices"
	"strings"
	"testing"
)

// regressions are plans, and random runs (without a plan), that once failed. Their effects are numbered as the code
// was then, so that a plan may come to mean something else; it must not fail anyway.
var regressions = []struct {
	scenario string
	seed     uint64
	// cloud are the semantics of its cloud.
	cloud string
	plan  string
	// what went wrong.
	what string
}{
	{"create-with-token", 1, "", "50:denied", "a bootstrap token was left after its deletion had been forbidden once"},
	{"drain-never-allowed", 1, "", "1:conflict",
		"a node that could not be cordoned, since others wrote to it, was not drained either"},
	{"update-by-agent", 2, "", "55:denied-for-long",
		"a machine whose agent could not be asked wrote its status to and fro, and each write triggered it"},
	{"update-by-agent", 4, "", "31:two-leaders", "what a former leader asked of an agent stayed on the node for good"},
	{"update-by-agent", 2, "", "27:two-leaders",
		"a node was put back into service while a former leader's request was on it"},
	{"churn-in-place", 3, "", "40:denied-for-long", "after a minute of errors the next try was a quarter of an hour away"},
	{"drain-for-update", 1, "", "31:time-jumps", "a drain counted from before a call of the cloud that took long"},
	{"drain-for-update", 1, "", "80:crash-before",
		"an instance was changed in place with a volume attached, since its drain was over"},
	{"drain-forced", 1, "", "59:denied",
		"one deletion that was refused left the Node of a machine that was deleted by force"},
	{"meltdown", 2, "", "14:time-jumps",
		"time in which nobody could see anything counted as time in which a truth becomes known"},
	{"drain-forced", 1, "", "1:freeze-Node",
		"a late cache counted as a target cluster that is unreachable where a machine was deleted by force"},
	{"adopt", 6, "", "16:denied-for-long",
		"the Node of an adopted instance was left, since the adoption was not written down before the instance went"},
	{"remediate", 1, "", "392:denied-for-long,431:clock-back",
		"a marked machine that was well again was replaced, since it had become so on a clock that was behind"},
	{"remediate", 1, "", "340:freeze-Secret,394:in-flight",
		"nothing: the oracle did not count a machine that a former leader made, and missed it when it went"},
	{"drain-stuck-volume", 1, "", "19:time-jumps",
		"the time in which the process was suspended counted as one in which volumes were waited for"},
	{"remediate", 1, "", "66:refused,173:in-flight",
		"nothing: the oracle took the machine of a former leader for the only one that may go for it"},
	{"remediate", 1, "", "69:clock-back,336:time-jumps",
		"a mark had the time before the process was suspended, so that it seemed old"},
	{"remediate", 1, "", "277:time-jumps,284:time-jumps",
		"nothing: the oracle counted a time in which nobody could act as one for taking a mark back"},
	{"autoscaler-roll", 1, "", "279:denied-for-long,313:conflict",
		"a set that its deployment had not ordered yet replaced a failed machine beyond what the deployment may have"},
	{"autoscaler-roll", 1, "", "303:two-leaders",
		"a set carried out what a former leader had ordered by an old view of its deployment"},
	{"autoscaler-roll", 1, "", "20:two-leaders,159:freeze-Machine",
		"nothing: the oracle did not see that a former leader had made the instance that is asked for again"},
	{"autoscaler-roll", 7036418, "", "",
		"nothing: the oracle took the size that an old set was last given for the one that was acted upon"},
	{"orphans", 1, "lists-late", "16:freeze-MachineSet",
		"nothing: no person confirmed a removal that was blocked only when a late list showed what had gone"},
	{"autoscaler-roll", 7036418, "", "94:restart-1-back",
		"nothing: the oracle held a machine to be of use that became so after its set had been ordered to shrink"},
	{"autoscaler-roll", 1, "", "290:denied-for-long,438:relist-Node",
		"a Node that could not be given its node template, and so was not written down, was left when its machine was deleted"},
	{"certificates", 1, "", "61:freeze-Node,139:denied-for-long",
		"a bootstrap token was left where it could not be read for a while"},
	{"migrate-G", 1, "", "378:denied",
		"instances that could not be listed passed for gone, so that old machines went and their tags for collection stayed"},
	{"migrate-K-abort", 1, "", "224:two-leaders",
		"a former migrator made the old controllers' Lease anew after the abort, which locked them out"},
	{"migrate-K-abort", 1, "", "221:two-leaders,234:relist-Migration",
		"a migrator in the middle of its copies made them after another one had opened the fence"},
	{"migrate-K", 1, "", "382:denied-for-long,699:two-leaders",
		"a migrator in the middle of a pass put the fence up after another one had completed the migration"},
	{"change-in-target-outage", 2239, "", "",
		"a process that began at the end of an outage gave its time to nobody who was about to join"},
	{"change-in-target-outage", 3747, "", "",
		"a machine that was deleted at the end of an outage left its Node behind, which had just registered"},
	{"change-in-target-outage", 3932, "", "",
		"a machine that was deleted at the end of an outage left its token behind, which had just been made"},
	{"change-in-target-outage", 7030239, "", "",
		"a machine left its token behind in a target cluster that had answered again, which its process did not know yet"},
	{"control-outage", 501512983568, "", "3:two-leaders", "nothing: the world had a leader elected while nobody could be"},
	{"rollback", 419443315910, "", "15:in-flight",
		"nothing: the world's cloud showed what a former leader had sent later than it had said"},
	{"drain-update-withdrawn", 378947948392, "", "14:relist-Machine,45:time-jumps",
		"nothing: the oracle did not see that a drain ended while a request of it was on its way"},
	{"churn-recreate", 587951405810, "", "2:restart-9-back",
		"nothing: people changed their minds before the deployment had acted, so that a set was never made"},
	{"too-many-unhealthy", 88580317766, "", "24:relist-MachineSet",
		"a set that could not be read counted as frozen, and was not read again"},
	{"class-vanishes-in-a-roll", 383413800413, "tags-late", "14:freeze-Node,27:two-leaders",
		"a machine of which only the provider ID was recorded took its instance, whose tags did not show yet, for another's"},
	{"secret-vanishes-at-creation", 475594806742, "quota-frees-late", "45:restart-9-back",
		"what the process before had said of a class, and a late cache showed only then, stayed although it was no longer so"},
	{"rollback", 675514061432, "", "3:two-leaders,23:relist-Machine",
		"a set asked for the deletion of a machine that was gone, again and again, as long as its cache was late"},
	{"interruption-withdrawn", 638746689472, "answers-lost", "",
		"nothing: the oracle did not know that a notice which was taken back counts until that is seen"},
	{"remediate", 1, "reads-late", "182:lost",
		"a creation whose recording was not answered did not count, and its instance was taken for gone"},
	{"orphans", 1, "clock-behind", "20:relist-Node",
		"the provider's clock, which was behind, made an orphan of twenty seconds old enough"},
	{"interruption-withdrawn", 246372250265, "answers-lost", "89:restart-9-back",
		"a process that saw the past gave pods the little time that a notice left them which had been taken back"},
	{"machines-lost", 1, "reads-flicker", "344:time-jumps",
		"a process with an old view of a class did not know that most instances had been orphaned"},
	{"in-place-by-selection", 1, "tags-late+quota-frees-late", "",
		"a second write before the event of the first made that event another's, and so on for ever"},
	{"drain-forced", 1, "quota-frees-late+credentials-expire", "19:restart-1-back",
		"nothing: the world did not count a full quota as a disturbance"},
	{"meltdown", 1, "reads-flicker", "3:denied-for-long",
		"nothing: the world's cloud had reads lack an instance twice, further apart than the contract of drivers allows"},
	{"machines-lost", 1, "", "17:clock-back",
		"a process that took most orphans for young did not report them, and the next one did not know that they had been most"},
	{"overshoot", 28113834592, "done-late+reads-flicker", "9:restart-3-back,137:freeze-Machine",
		"nothing: the oracle missed the Node of an instance of which no answer had ever reported"},
	{"target-outage", 544120416693, "", "4:denied-for-long,6:freeze-PodDisruptionBudget",
		"nothing: a view that was to go on while its cluster was unreachable did not when that came back"},
	{"change-in-target-outage", 452412954342, "throttled", "219:crash-after",
		"nothing: what may be left in a target cluster that was unreachable counted as a difference between two ends"},
	{"orphans-in-outage", 1026979118669, "clock-behind", "1:time-jumps",
		"an orphan that was made while a pass was suspended counted as seen since the pass began"},
	{"inline-secret-deleted", 736016899501, "quota-frees-late+reads-flicker", "0:freeze-Node,7:denied-for-long",
		"a deletion forgot the instance that it had found and could not write down, and left its Node"},
	{"meltdown", 449069114699, "", "19:restart-9-back,25:time-jumps",
		"a health timeout went by another clock, and a process that had slept saw too few nodes that were ill"},
	{"meltdown", 278342277516, "", "9:time-jumps",
		"a health timeout went by another clock, and a process that had slept saw too few nodes that were ill"},
	{"preserve", 7026265, "", "",
		"a set patched machines in place without asking whether it just had, and panicked since it remembered none"},
	{"churn-on-delete", 7004257, "", "",
		"a set patched machines in place without asking whether it just had, and panicked since it remembered none"},
	{"churn", 7013003, "", "",
		"a set patched machines in place without asking whether it just had, and panicked since it remembered none"},
	{"churn-in-place", 7019654, "", "",
		"a set patched machines in place without asking whether it just had, and panicked since it remembered none"},
	{"fleet-paused", 8, "", "",
		"a set of an old revision took the machines beyond replicas for a surge, so that a scale-down waited for a budget"},
	{"budget-in-place", 1, "", "",
		"while a budget denied an update in place, a deployment gave its growth to a set that makes no machines"},
	{"budget-in-place", 905000, "", "",
		"a hand-over of which nobody knew whether it was written, and that was not, took the room of a budget for ever"},
	{"budget-of-the-broken", 60, "", "",
		"a process whose cache began with an old list of budgets disrupted machines of a fleet that was paused"},
	{"update-by-agent-again", 1463, "", "",
		"a process with an old view of a machine had its agent make a change that had been taken back"},
	{"in-place-withdrawn", 2022, "", "",
		"a change in place that was taken back before its result was written down was made for good"},
	{"in-place-withdrawn", 1, "reports-failed", "14:two-leaders",
		"a former leader with an old view of a machine changed it in place after its successor had"},
	{"in-place-withdrawn", 1, "", "5:crash-after,30:in-flight",
		"a request of a former leader came after the change had been taken back"},
	{"churn-in-place", 204, "", "",
		"an instance that was made from a former specification counted as made from the present one"},
	{"incident-webhook-down", 1, "", "165:time-jumps",
		"a set whose creation was refused after more than the wait until the next try did not try again"},
	{"update-by-agent-withdrawn", 4016, "", "",
		"a process that had just started reported the version of a cached node to the driver, which called the change made"},
	{"update-by-agent-withdrawn", 4016, "", "18:time-jumps",
		"nothing: a view that went on in the middle of a pass counted as older than it was when the pass began"},
	{"change-while-target-refuses", 783, "", "",
		"nothing: a pass was to know of a denial that began after it had read the last"},
}

// What failed once does not fail again.
func TestPlansThatOnceFailed(t *testing.T) {
	t.Parallel()
	byName := map[string]Scenario{}
	for _, s := range Scenarios() {
		byName[s.Name] = s
	}
	for _, r := range regressions {
		t.Run(strings.Join([]string{r.scenario, r.cloud, r.plan}, " "), func(t *testing.T) {
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
			if result := p.Under(habits).Run(r.seed, plan, nil); result.Err != nil {
				t.Errorf("%s: %v", r.what, result.Err)
			}
		})
	}
}

// corruptions are changes of one field that once made the world go wrong. Their effects are numbered as the code was
// then, too.
var corruptions = []struct {
	scenario   string
	seed       uint64
	corruption string
	// want are what may come of it.
	want []Outcome
	// what went wrong.
	what string
}{
	{"migrate-K-abort", 1, "362:control/MachineClass/fleet/b/spec/credentialsRef/name=of-another",
		[]Outcome{Named, AskedFor},
		"an abort waited without a word for a Secret that another class uses, four times a second"},
	{"migrate-K-abort", 1, "362:control/Secret/fleet/plain/metadata/labels/machinist.dev~1migration=of-another",
		[]Outcome{Harmless}, "an abort deleted a Secret that the migration had not made, and waited for its end"},
	{"migrate-K-abort", 9, "309:control/Migration/fleet/over/metadata/finalizers=dropped", []Outcome{Repaired},
		"an abort of a migration that had stopped no workload left all that it had made"},
	{"migrate-K-abort", 1, "end:control/Migration/fleet/over/metadata/finalizers=former", []Outcome{Repaired, Harmless},
		"a finalizer that somebody put on a migration again after its end stayed until the next start"},
	{"machines-lost", 1, "374:control/MachineClass/fleet/a/status/conditions=emptied", []Outcome{Repaired, Harmless},
		"a class whose status was emptied forgot that most instances were orphans, and they were removed"},
	{"control-outage", 1, "13:control/Machine/fleet/web-2b8fpn8lk-00003/status/instance=emptied", []Outcome{Repaired},
		"an empty description of an instance was taken for one after a restart"},
	{"cloud-forgets", 7, "0:control/Machine/fleet/web-2b8fpn8lk-00004/spec/classRef/name=highest",
		[]Outcome{AskedFor, Named}, "a cloud that denies all was believed about a machine of a class that does not exist"},
	{"update-by-agent-withdrawn", 4016, "32:control/Machine/fleet/web-567zrqjd9-00001/status=of-another",
		[]Outcome{Repaired, Harmless, AskedFor, Named}, "an agent step whose pass dropped the node of another panicked"},
}

// What somebody changed once does no harm any more.
func TestCorruptionsThatOnceFailed(t *testing.T) {
	t.Parallel()
	byName := map[string]Scenario{}
	for _, s := range Scenarios() {
		byName[s.Name] = s
	}
	for _, c := range corruptions {
		t.Run(c.scenario+" "+c.corruption, func(t *testing.T) {
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
				t.Errorf("%s: %q, %v", c.what, outcome, err)
			}
		})
	}
}
