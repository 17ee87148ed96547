package main

// meanOf returns the means of several rounds of one size. For counts of writes, reads and reconciles, meanOf returns
// the maximum, so that no round hides an excessive count.
func meanOf(rounds []*result) *result {
	if len(rounds) == 1 {
		return rounds[0]
	}
	r := &result{Machines: rounds[0].Machines, Pods: rounds[0].Pods}
	phases := func(selectFrom func(*result) *phase) (all []*phase) {
		for _, round := range rounds {
			all = append(all, selectFrom(round))
		}
		return all
	}
	r.Create = meanPhase(phases(func(r *result) *phase { return &r.Create }))
	r.Delete = meanPhase(phases(func(r *result) *phase { return &r.Delete }))
	if rounds[0].Roll != nil {
		roll := meanPhase(phases(func(r *result) *phase { return r.Roll }))
		r.Roll = &roll
	}
	for _, round := range rounds {
		r.Idle.Writes += round.Idle.Writes
		r.Idle.Seconds += round.Idle.Seconds
		r.Idle.CPUSeconds += round.Idle.CPUSeconds
		r.Idle.Heartbeats += round.Idle.Heartbeats
		r.Idle.Shares.add(round.Idle.Shares, 1)
		if round.Memory.PeakMiB > r.Memory.PeakMiB {
			r.Memory = round.Memory
		}
	}
	return r
}

// meanPhase computes each ratio from the sums of all rounds.
func meanPhase(rounds []*phase) phase {
	var p phase
	n := float64(len(rounds))
	p.Writes, p.Reads = map[string]int{}, map[string]int{}
	for _, round := range rounds {
		for _, f := range []struct {
			sum *float64
			add float64
		}{
			{&p.Seconds, round.Seconds}, {&p.Speed, round.Speed}, {&p.WritesPerMachine, round.WritesPerMachine},
			{&p.EventsPerMachine, round.EventsPerMachine}, {&p.ConflictsPerMachine, round.ConflictsPerMachine},
			{&p.ReadsPerMachine, round.ReadsPerMachine},
			{&p.CPUSeconds, round.CPUSeconds}, {&p.ManagerCPUSeconds, round.ManagerCPUSeconds},
			{&p.ProviderCPUSeconds, round.ProviderCPUSeconds},
			{&p.AllocatedMiBPerMachine, round.AllocatedMiBPerMachine},
			{&p.OwnAllocatedMiB, round.OwnAllocatedMiB},
			{&p.P50Seconds, round.P50Seconds}, {&p.P99Seconds, round.P99Seconds},
		} {
			*f.sum += f.add / n
		}
		p.Shares.add(round.Shares, len(rounds))
		p.MachinesCreated = max(p.MachinesCreated, round.MachinesCreated)
		for call, times := range round.Writes {
			p.Writes[call] = max(p.Writes[call], times)
		}
		for call, times := range round.Reads {
			p.Reads[call] = max(p.Reads[call], times)
		}
		for controller, times := range round.Passes {
			if p.Passes == nil {
				p.Passes = map[string]int{}
			}
			p.Passes[controller] = max(p.Passes[controller], times)
		}
	}
	p.Limit = meanLimit(rounds, func(p *phase) limit { return p.Limit })
	p.Independent = meanLimit(rounds, func(p *phase) limit { return p.Independent })
	return p
}

func meanLimit(rounds []*phase, selectFrom func(*phase) limit) limit {
	var l limit
	var seconds, work, limitWork, allocated float64
	n := float64(len(rounds))
	for _, p := range rounds {
		round := selectFrom(p)
		l.Seconds += round.Seconds / n
		l.Speed += round.Speed / n
		l.WritesPerMachine += round.WritesPerMachine / n
		l.AllocatedMiBPerMachine += round.AllocatedMiBPerMachine / n
		allocated += p.AllocatedMiBPerMachine / n
		l.Shares.add(round.Shares, len(rounds))
		seconds += p.Seconds / n
		work += p.Seconds * p.Speed
		limitWork += round.Seconds * round.Speed
		l.Rounds = append(l.Rounds, round.EvenRatio)
	}
	if l.Seconds == 0 {
		return limit{}
	}
	l.Ratio, l.EvenRatio = seconds/l.Seconds, work/limitWork
	if l.AllocatedMiBPerMachine > 0 {
		l.AllocationRatio = allocated / l.AllocatedMiBPerMachine
	}
	return l
}
