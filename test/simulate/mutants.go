package main

// mutant is a bug that a developer might introduce. The simulation is only useful if it finds all these bugs.
type mutant struct {
	name string
	// To plant the bug, the text in the field from is replaced by the text in the field to. The old text must
	// occur exactly once in the file.
	file, from, to string
	// alsoRemoved is a second defense. It is removed together with the first defense, because it would otherwise
	// hide that the first defense is missing.
	alsoRemoved *mutant
	// removeDimension contains changes of the source code that remove the dimension of the world for which the bug
	// was added. This field is only set if no flag can remove the dimension.
	removeDimension []*mutant
	// quick is true if many runs find the bug, so that the first violation takes only a few seconds. CI plants an even
	// sample of the quick bugs.
	quick bool
	// scenario is the scenario that reveals the bug. If scenario is empty, all scenarios are run.
	scenario string
	// finds is a pattern that the text of one of the violations must match.
	finds string
	// seed is a seed that has found a rare bug. If plan is set, this is the seed of the plan. The seed is tried first, and
	// usually finds the bug until the controllers change.
	seed int
	// plan is a plan that has found the bug. The seed is given by the field seed, or 1 if that is not set. This plan is
	// tried before a sweep of plans.
	plan string
	// cloud contains the semantics that the cloud must have to reveal the bug. In this cloud, the search tries
	// plans with one fault.
	cloud string
	// corruption is a corruption that has found the bug. This field is set only if no other kind of run reveals
	// the bug. This corruption is tried before a sweep of corruptions.
	corruption string
	// handovers is true if only hand-overs of shards reveal the bug.
	handovers bool
	// planned is true if a sweep of plans finds the bug. This sweep is tried before random runs.
	planned bool
}
