package main

// averaged is what several rounds of one size cost: means, and of what must not happen in any the worst. What the
// machine did to one of them weighs the less the more there are.
func averaged(rounds []*result) *result {
	if len(rounds) == 1 {
		return rounds[0]
	}
	r := &result{Machines: rounds[0].Machines, Pods: rounds[0].Pods}
	phases := func(of func(*result) *phase) (all []*phase) {
		for _, one := range rounds {
			all = append(all, of(one))
		}
		return all
	}
	r.Create = averagedPhase(phases(func(r *result) *phase { return &r.Create }))
	r.Delete = averagedPhase(phases(func(r *result) *phase { return &r.Delete }))
	if rounds[0].Roll != nil {
		roll := averagedPhase(phases(func(r *result) *phase { return r.Roll }))
		r.Roll = &roll
	}
	for _, one := range rounds {
		r.Idle.Writes += one.Idle.Writes
		r.Idle.Seconds += one.Idle.Seconds
		r.Idle.CPUSeconds += one.Idle.CPUSeconds
		r.Idle.Heartbeats += one.Idle.Heartbeats
		r.Idle.Shares.add(one.Idle.Shares, 1)
		if one.Memory.PeakMiB > r.Memory.PeakMiB {
			r.Memory = one.Memory
		}
	}
	return r
}

// averagedPhase is one phase of several rounds. Its ratios are those of the sums.
func averagedPhase(rounds []*phase) phase {
	var p phase
	n := float64(len(rounds))
	p.Writes, p.Reads = map[string]int{}, map[string]int{}
	for _, one := range rounds {
		for _, f := range []struct {
			sum *float64
			add float64
		}{
			{&p.Seconds, one.Seconds}, {&p.Speed, one.Speed}, {&p.WritesPerMachine, one.WritesPerMachine},
			{&p.EventsPerMachine, one.EventsPerMachine}, {&p.ConflictsPerMachine, one.ConflictsPerMachine},
			{&p.ReadsPerMachine, one.ReadsPerMachine},
			{&p.CPUSeconds, one.CPUSeconds}, {&p.ManagerCPUSeconds, one.ManagerCPUSeconds},
			{&p.ProviderCPUSeconds, one.ProviderCPUSeconds},
			{&p.AllocatedMiBPerMachine, one.AllocatedMiBPerMachine},
			{&p.OwnAllocatedMiB, one.OwnAllocatedMiB},
			{&p.P50Seconds, one.P50Seconds}, {&p.P99Seconds, one.P99Seconds},
		} {
			*f.sum += f.add / n
		}
		p.Shares.add(one.Shares, len(rounds))
		p.MachinesCreated = max(p.MachinesCreated, one.MachinesCreated)
		for call, times := range one.Writes {
			p.Writes[call] = max(p.Writes[call], times)
		}
		for call, times := range one.Reads {
			p.Reads[call] = max(p.Reads[call], times)
		}
		for controller, times := range one.Passes {
			if p.Passes == nil {
				p.Passes = map[string]int{}
			}
			p.Passes[controller] = max(p.Passes[controller], times)
		}
	}
	p.Limit = averagedLimit(rounds, func(p *phase) limit { return p.Limit })
	p.Independent = averagedLimit(rounds, func(p *phase) limit { return p.Independent })
	return p
}

// averagedLimit is a limit of several rounds.
func averagedLimit(rounds []*phase, of func(*phase) limit) limit {
	var l limit
	var seconds, work, limitWork, allocated float64
	n := float64(len(rounds))
	for _, p := range rounds {
		one := of(p)
		l.Seconds += one.Seconds / n
		l.Speed += one.Speed / n
		l.WritesPerMachine += one.WritesPerMachine / n
		l.AllocatedMiBPerMachine += one.AllocatedMiBPerMachine / n
		allocated += p.AllocatedMiBPerMachine / n
		l.Shares.add(one.Shares, len(rounds))
		seconds += p.Seconds / n
		work += p.Seconds * p.Speed
		limitWork += one.Seconds * one.Speed
		l.Rounds = append(l.Rounds, one.EvenRatio)
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
