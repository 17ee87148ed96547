package main

// mutant is a bug that a developer might write. The simulation must find each of them, or it is not worth its time.
type mutant struct {
	name string
	// file is changed by replacing from with to. The text from occurs there exactly once.
	file, from, to string
	// without is also removed: a second defence, which would hide that the first one is missing.
	without *mutant
	// removeDimension removes the dimension of the world for which the bug exists, if no flag does.
	removeDimension []*mutant
	// quick is true for a bug that many runs find, the first of them within a few seconds. CI plants an even sample of
	// these.
	quick bool
	// scenario is the scenario that reveals the bug, all scenarios if empty.
	scenario string
	// finds matches the text that one of the violations must contain.
	finds string
	// last is a seed that found a rare bug, or the seed of plan. It is tried first, and finds the bug until the code takes
	// another path.
	last int
	// plan is a plan that found the bug, with seed last or 1. It is tried first, and then a sweep of plans.
	plan string
	// cloud are the semantics of the cloud that are needed to reveal the bug. Plans with one fault are tried under them.
	cloud string
	// corruption is a corruption that found the bug, which only corruptions reveal. It is tried first, and then a sweep of
	// corruptions.
	corruption string
	// handovers is true for a bug that only hand-overs of shards reveal.
	handovers bool
	// planned is true for a bug that a sweep of plans finds. The sweep is tried before random runs.
	planned bool
}
