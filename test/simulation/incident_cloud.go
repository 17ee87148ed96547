package simulation

import (
	"math/rand/v2"
	"slices"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// troubledClouds are scenarios with a cause in the cloud: quotas, rate limits, and wrong reports about instances.
func troubledClouds() []Scenario {
	return []Scenario{
		{Name: "quota-full", Group: Incidents, Variants: 2, Base: fleet(3, "a"), Script: quotas, MayDiffer: anyEnd},
		{Name: "rate-limited", Group: Incidents, Script: inOrder([]Action{bootAtOnce(),
			trouble("the cloud answers 2 calls a minute", func(t *troubles) { t.perMinute = 2 }), create(fleet(6, "a")),
		}, lasting(2), []Action{trouble("the limit is lifted", func(t *troubles) { t.perMinute = 0 }), scale(2)}),
			MayDiffer: passedRevisions},
		{Name: "retry-beside-collection", Group: Incidents, Controllers: Orphans, Base: fleet(2, "a"),
			Script: retriesBesideCollection},
		{Name: "burst-cancelled", Group: Incidents, Script: bursts},
		{Name: "cloud-forgets", Group: Incidents, Controllers: Health | Orphans, Base: fleet(4, "a"), Script: forgetting},
	}
}

// quotas is a rollout that needs one instance more than the quota allows, or a rollout that frees one first.
func quotas(r *rand.Rand) []Action {
	change := strategy(1, 0)
	if r.IntN(2) == 0 {
		change = strategy(0, 1)
	}
	return slices.Concat([]Action{bootAtOnce(), setStrategy(change),
		trouble("the quota is used up", func(t *troubles) { t.quota = 3 }), roll("b").after(some(r, time.Minute))},
		lasting(4), []Action{trouble("the quota is raised", func(t *troubles) { t.quota = 0 })}, lasting(1))
}

// retriesBesideCollection is a machine whose first creations are refused, and whose next one succeeds without an
// answer. Meanwhile, the orphan collection looks for instances without a machine.
func retriesBesideCollection(r *rand.Rand) []Action {
	return []Action{
		trouble("the quota is used up", func(t *troubles) { t.quota = 2 }), scale(3),
		under([]Semantics{AnswersLost, DoneLate}[r.IntN(2)]).after(90 * time.Second),
		trouble("the quota is raised", func(t *troubles) { t.quota = 0 }),
		wait(4 * time.Minute),
	}
}

// bursts is many machines that are requested, and withdrawn before most of them exist, in a cloud that loses answers.
func bursts(r *rand.Rand) []Action {
	return []Action{
		bootAtOnce(), under([]Semantics{AnswersLost, DoneLate}[r.IntN(2)]), create(fleet(6, "a")),
		scale(1).onceMade(3 + r.IntN(4)).after(some(r, 5*time.Second)), scale(0).after(4 * time.Minute),
	}
}

// forgetting is a cloud that reports no instances for a while, as after the loss of its index or in another account.
// All Nodes are Ready, except one whose kubelet restarts.
func forgetting(r *rand.Rand) []Action {
	return []Action{steadily(), trouble("the cloud forgets its instances", func(t *troubles) { t.forgets = true }),
		silence(r.IntN(4)).after(some(r, time.Minute)), revive(0).after(40 * time.Second), wait(4 * time.Minute),
		trouble("the cloud remembers them", func(t *troubles) { t.forgets = false }), wait(2 * time.Minute)}
}

// mostRefused is how often a machine may be refused an instance while the quota is used up. Its waits grow from one
// minute to ten, and faults may shorten a few. mostThrottled is how many calls of a few machines may be refused in a
// minute. Their waits grow from one second.
const (
	mostRefused   = 15
	mostThrottled = 60
)

// mayInsist checks how often the processes repeat calls that the cloud has refused.
func (o *oracle) mayInsist() {
	t := &o.world.cloud.troubles
	for id, all := range t.refused {
		if len(all) > mostRefused {
			name := string(id)
			if m := o.machines[id]; m != nil {
				name = m.Name
			}
			o.breach("quota", "machine %s has requested %d times an instance that the quota does not allow", name, len(all))
		}
	}
	if len(t.throttled) > mostThrottled {
		o.breach("stampede", "%d calls were throttled in one minute", len(t.throttled))
	}
}

// mayBeFailedByLimit checks that a machine does not fail only because the cloud throttles its calls.
func (o *oracle) mayBeFailedByLimit(before, m *v1beta1.Machine) {
	c := o.world.cloud
	if c.troubles.perMinute > 0 && len(c.past.habits) == 0 && m.Status.FailureReason != "" &&
		before.Status.FailureReason == "" {
		o.breach("stampede", "machine %s has failed (%s) although the cloud only throttles calls", m.Name,
			m.Status.FailureReason)
	}
}
