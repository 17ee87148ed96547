package simulation

import (
	"math/rand/v2"
	"slices"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// troubledClouds returns scenarios in which the cloud causes the incident: by quotas, rate limits, or wrong reports
// about instances.
func troubledClouds() []Scenario {
	return []Scenario{
		{Name: "quota-full", Group: Incidents, Variants: 2, Base: fleet(3, "a"), Script: quotas, MayDiffer: anyEnd},
		{Name: "rate-limited", Group: Incidents, Script: inOrder([]Action{bootAtOnce(),
			trouble("the cloud answers 2 calls a minute", func(t *cloudProblems) { t.perMinute = 2 }), create(fleet(6, "a")),
		}, lasting(2), []Action{trouble("the limit is lifted", func(t *cloudProblems) { t.perMinute = 0 }), scale(2)}),
			MayDiffer: passedRevisions},
		{Name: "retry-beside-collection", Group: Incidents, Controllers: Orphans, Base: fleet(2, "a"),
			Script: retriesBesideCollection},
		{Name: "burst-cancelled", Group: Incidents, Script: bursts},
		{Name: "cloud-forgets", Group: Incidents, Controllers: Health | Orphans, Base: fleet(4, "a"), Script: forgetting},
	}
}

// quotas returns actions that roll out a fleet when no quota is left. The rollout needs one instance more than allowed,
// or deletes an instance first.
func quotas(r *rand.Rand) []Action {
	change := strategy(1, 0)
	if r.IntN(2) == 0 {
		change = strategy(0, 1)
	}
	return slices.Concat([]Action{bootAtOnce(), setStrategy(change),
		trouble("the quota is used up", func(t *cloudProblems) { t.quota = 3 }), roll("b").after(upTo(r, time.Minute))},
		lasting(4), []Action{trouble("the quota is raised", func(t *cloudProblems) { t.quota = 0 })}, lasting(1))
}

// retriesBesideCollection creates a machine for which the cloud first refuses an instance. Then the creation succeeds,
// but the response is lost. Meanwhile, the orphan collection looks for instances without a machine.
func retriesBesideCollection(r *rand.Rand) []Action {
	return []Action{
		trouble("the quota is used up", func(t *cloudProblems) { t.quota = 2 }), scale(3),
		addSemantics([]Semantics{AnswersLost, DoneLate}[r.IntN(2)]).after(90 * time.Second),
		trouble("the quota is raised", func(t *cloudProblems) { t.quota = 0 }),
		wait(4 * time.Minute),
	}
}

// bursts returns actions that request many machines, and withdraw the request before most of the machines exist. The
// cloud loses responses.
func bursts(r *rand.Rand) []Action {
	return []Action{
		bootAtOnce(), addSemantics([]Semantics{AnswersLost, DoneLate}[r.IntN(2)]), create(fleet(6, "a")),
		scale(1).onceMade(3 + r.IntN(4)).after(upTo(r, 5*time.Second)), scale(0).after(4 * time.Minute),
	}
}

// forgetting returns actions for a cloud that returns no instances for a while, as if it had lost its index or the
// credentials were for another account. All Nodes are Ready, except for one whose kubelet restarts.
func forgetting(r *rand.Rand) []Action {
	return []Action{stopUsers(), trouble("the cloud forgets its instances", func(t *cloudProblems) { t.forgets = true }),
		silence(r.IntN(4)).after(upTo(r, time.Minute)), revive(0).after(40 * time.Second), wait(4 * time.Minute),
		trouble("the cloud remembers them", func(t *cloudProblems) { t.forgets = false }), wait(2 * time.Minute)}
}

// mostRefused limits how often the cloud refuses an instance for one machine while the quota is used up. The waits
// between attempts grow from one to ten minutes, but faults may shorten some. mostThrottled limits how many calls the
// cloud throttles in one minute. The waits between these calls grow from one second.
const (
	mostRefused   = 15
	mostThrottled = 60
)

// mayInsist reports a breach if the processes repeat refused calls too often.
func (o *oracle) mayInsist() {
	t := &o.world.cloud.troubles
	for id, all := range t.refused {
		if len(all) > mostRefused {
			name := string(id)
			if m := o.machines[id]; m != nil {
				name = m.Name
			}
			o.breach("quota", "machine %s has requested an instance %d times, although the quota forbids it", name,
				len(all))
		}
	}
	if len(t.throttled) > mostThrottled {
		o.breach("stampede", "%d calls were throttled in one minute", len(t.throttled))
	}
}

// mayBeFailedByLimit checks that a machine does not fail just because the cloud throttles calls.
func (o *oracle) mayBeFailedByLimit(before, m *v1beta1.Machine) {
	c := o.world.cloud
	if c.troubles.perMinute > 0 && len(c.past.habits) == 0 && m.Status.FailureReason != "" &&
		before.Status.FailureReason == "" {
		o.breach("stampede", "machine %s has failed (%s) although the cloud only throttles calls", m.Name,
			m.Status.FailureReason)
	}
}
