package main

// windowsAtFirst gives a budget the time at which it was first asked about.
var windowsAtFirst = &mutant{file: "internal/disruption/budget.go", from: "	windows    window.Set\n",
	to: "	windows    window.Set\n	first time.Time\n"}

// disruptionMutants are bugs in what asks disruption budgets, and in how they are counted.
func disruptionMutants() []mutant {
	return []mutant{
		{
			name: "grant-not-reserved", file: "internal/disruption/ledger.go",
			from: "		r.granted[c.Machine.UID] = false\n", to: "		_ = r.granted[c.Machine.UID]\n",
			scenario: "budgets-overlap", finds: "budget: ", last: 2, plan: "200:lost",
		},
		{
			name: "ambiguous-grant-forgotten", file: "internal/disruption/ledger.go",
			from: "	if freshness.Ambiguous(err) {", to: "	if freshness.Ambiguous(err) && l == nil {",
			scenario: "budgets-overlap", finds: "budget: ", last: 2, plan: "200:lost",
		},
		{
			name: "first-grant-from-the-cache", file: "internal/disruption/count.go",
			from: "	if trusts {\n		return l.cached(ctx, namespace)", to: "	if trusts || true {\n		return l.cached(ctx, namespace)",
			scenario: "budgets-overlap", finds: "budget: ", last: 4,
		},
		{
			name: "budgets-from-a-late-list", file: "internal/disruption/count.go",
			from: "	return t.Confirmed(), t.Mark()", to: "	return true, t.Mark()",
			scenario: "budget-of-the-broken", finds: "budget: ", last: 60,
		},
		{
			name: "budget-counted-over-the-own-set", file: "internal/disruption/view.go",
			from:     "		if u.disrupted >= u.allowed && u.Asks(c.Reason) {",
			to:       "		u.disrupted = 0\n		for _, m := range v.machines {\n			if v.disrupted[m.UID] && m.Labels[v1beta1.LabelMachineSet] == c.Machine.Labels[v1beta1.LabelMachineSet] {\n				u.disrupted++\n			}\n		}\n		if u.disrupted >= u.allowed && u.Asks(c.Reason) {",
			scenario: "budgets-overlap", finds: "budget: ",
		},
		{
			name: "percentage-rounded-up", file: "internal/disruption/budget.go",
			from: "selected*b.limit/100)", to: "(selected*b.limit+99)/100)",
			scenario: "budgets-overlap", finds: "budget: ",
		},
		{
			name: "window-looked-at-once", file: "internal/disruption/budget.go", without: windowsAtFirst,
			from:     "	return len(b.windows) == 0 ||",
			to:       "	if b.first.IsZero() {\n		b.first = now\n	}\n	now = b.first\n	return len(b.windows) == 0 ||",
			scenario: "budget-windows", finds: "budget: |settled, but|after the last disturbance",
		},
		{
			name: "reasons-ignored", file: "internal/disruption/budget.go",
			from: "	return len(b.reasons) == 0 ||", to: "	return len(b.reasons) >= 0 ||",
			scenario: "exchange", finds: "settled, but|after the last disturbance",
		},
		{
			name: "exemption-ignored-in-remediation", file: "internal/disruption/view.go",
			from:     "	if until, exempt := ExemptUntil(c.Machine, v.now); exempt {",
			to:       "	if until, exempt := ExemptUntil(c.Machine, v.now); exempt && c.Reason != v1beta1.DisruptionRemediation {",
			scenario: "budget-of-the-broken", finds: "exempt: ",
		},
		{
			name: "claims-of-others-ignored", file: "internal/disruption/ledger.go",
			from: "	if r == nil || len(r.waiting) == 0 {", to: "	if r == nil || len(r.waiting) >= 0 {",
			scenario: "budget-of-the-broken", finds: "order: ",
		},
		{
			name: "rollout-does-not-ask", file: "internal/machineset/disruption.go",
			from: "		if s.Outdated || machinestate.Exchanged(m) {", to: "		if machinestate.Exchanged(m) {",
			scenario: "budgets-overlap", finds: "budget: ",
		},
		{
			name: "scale-down-asks", quick: true, file: "internal/machineset/disruption.go",
			from: "	s.ScaleDown = max(0, live-int(replicas)-surge)", to: "	s.ScaleDown = 0 * max(0, live-int(replicas)-surge)",
			scenario: "fleet-paused", finds: "settled, but|after the last disturbance",
		},
		{
			name: "surge-of-no-newer-machine", file: "internal/machineset/disruption.go",
			from: "		surge = min(surge, newer)", to: "		surge = min(surge, newer+surge)",
			scenario: "fleet-paused", finds: "settled, but|after the last disturbance",
		},
		{
			name: "scale-down-taken-for-an-exchange", file: "internal/machineset/disruption.go",
			from: "		surge = min(surge, int(disruption.ExchangeSurge(s.Set)))", to: "		surge = min(surge, surge+int(disruption.ExchangeSurge(s.Set)))",
			scenario: "scale-down-of-the-exchanged", finds: "settled, but|after the last disturbance",
		},
		{
			name: "exchanged-before-the-other-is-available", quick: true, file: "internal/machineset/exchange.go",
			from: "return spare > 0 || spare == 0 && !available(m) })", to: "return true })",
			scenario: "exchange-in-a-set", finds: "I3",
		},
		{
			name: "order-not-taken-back-in-a-pause", file: "internal/machinedeployment/plan_inplace.go",
			from: "		case set.Denied >= set.Live:", to: "		case set.Denied > set.Live:",
			scenario: "budget-in-place", finds: "settled, but|after the last disturbance",
		},
		{
			name: "growth-given-to-a-set-that-makes-none", file: "internal/machinedeployment/plan.go",
			from: "	case s.deniedInPlace():", to: "	case s.deniedInPlace() && false:",
			scenario: "budget-in-place", finds: "settled, but|after the last disturbance",
		},
	}
}
