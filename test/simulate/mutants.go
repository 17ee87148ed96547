package main

// mutant is a bug that somebody might write. The world must find each of them: a simulation that passes with one is not
// worth its time.
type mutant struct {
	name string
	// file is changed by replacing from, which occurs there exactly once, with to.
	file, from, to string
	// without is what is taken out as well: a second defence, which would hide that the first one is gone.
	without *mutant
	// plain takes out of the world the dimension that the bug is there for, where no flag does.
	plain []*mutant
	// quick is true for what many runs find, the first of them within a few seconds: CI plants an even sample of these.
	quick bool
	// scenarios are those that can show it, all if there are none.
	scenario string
	// finds is what one of the violations must say.
	finds string
	// last is a seed that found one that is rare, or that of plan. It is tried first, and finds it until the code takes
	// another path.
	last int
	// plan is a plan that found it, of seed last or 1. It is tried first, and after it a sweep of plans.
	plan string
	// cloud are the semantics of the cloud that show it, and nothing else does. Plans of one fault are tried under them.
	cloud string
	// corruption is one that found it, and nothing else than corruptions does. It is tried first, and after it a sweep
	// of corruptions.
	corruption string
	// handovers is true for what is found where shards are handed over, and nowhere else.
	handovers bool
	// planned is true for what a sweep of plans finds, which comes before random runs.
	planned bool
}
