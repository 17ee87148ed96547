package main

// incidentMutants are planted bugs with the causes of incidents that users of other systems have reported. The
// scenarios of other groups do not show them.
func incidentMutants() []mutant {
	return []mutant{
		{
			name: "cloud-that-denies-all-is-believed", quick: true, file: "internal/machine/absence_witness.go",
			from: "	for _, m := range witnesses {", to: "	for _, m := range witnesses[:0] {",
			scenario: "cloud-forgets", finds: "vanished: ", last: 1,
		},
		{
			name: "token-never-extended", quick: true, file: "internal/machine/attempt.go",
			from:     "m.Spec.Timeouts.CreationOrDefault() <= maxTokenLife ||",
			to:       "m.Spec.Timeouts.CreationOrDefault() > 0 ||",
			scenario: "slow-boot", finds: "settled, but|after the last disturbance", planned: true,
		},
		{
			name: "time-to-join-ends-with-the-node", file: "internal/machine/status.go",
			from:     "	if p.hasRun() || m.Status.Phase == v1beta1.MachineFailed {",
			to:       "	if p.hasRun() || m.Status.Phase == v1beta1.MachineFailed || m.Status.NodeRef != nil {",
			scenario: "flapping-join", finds: "join: ", planned: true,
		},
		{
			name: "waits-do-not-grow", quick: true, file: "internal/machine/retry_policy.go",
			from: "	for range min(failures, 32) - 1 {", to: "	for range min(failures, 1) - 1 {",
			scenario: "rate-limited", finds: "stampede: ", planned: true,
		},
		{
			name: "quota-asked-each-minute", quick: true, file: "internal/machine/retry_policy.go",
			from:     "return retryPolicy{v1beta1.ReasonInsufficientResources, time.Minute, 10 * time.Minute}",
			to:       "return retryPolicy{v1beta1.ReasonInsufficientResources, time.Minute, time.Minute}",
			scenario: "quota-full", finds: "quota: ", planned: true,
		},
		{
			name: "relabelled-machines-are-forgotten", file: "internal/machineset/observe.go",
			from:     "countLive(machines) < int(p.state.Set.ReplicasOrDefault())",
			to:       "countLive(machines) < 0",
			scenario: "incident-policy-relabels", finds: "I3",
		},
		{
			name: "health-checks-hide-a-failing-revision", file: "internal/machinedeployment/failing.go",
			from:     "machinestate.Starting(m) && requested != nil && requested.Status == metav1.ConditionTrue",
			to:       "machinestate.Starting(m) && requested != nil && requested.Status == metav1.ConditionFalse",
			scenario: "incident-image-never-ready", finds: "settled, but|after the last disturbance",
		},
	}
}
