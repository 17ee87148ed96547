package main

// mutant is a bug that a developer might introduce. A useful simulation finds all of them.
type mutant struct {
	name string
	// To plant the bug, the hunt replaces oldText in the file by newText. The old text must occur exactly once in the
	// file.
	file, oldText, newText string
	// alsoRemoved is another change that is planted together with this bug. The additional change removes a check that
	// would hide the bug.
	alsoRemoved *mutant
	// removeDimension turns off a feature of the simulation by source changes: the feature that was added to find this
	// bug. removeDimension is set only if no flag can turn off this feature.
	removeDimension []*mutant
	// quick is set if many runs find the bug, so that the first violation takes only seconds. CI plants a sample of the
	// bugs for which quick is set.
	quick    bool
	scenario string
	finds    string
	// seed is the random seed of a run that has found a rare bug, or the seed for the field plan. The search tries this
	// seed first. While the controllers do not change, a run with this seed usually finds the bug again.
	seed int
	// plan contains the faults of a run that has found the bug. The hunt tries this plan first, and then other plans.
	// The plan runs with the field seed, or with the seed 1.
	plan string
	// cloud contains the names of the cloud semantics that are necessary to find the bug. In this cloud, the search
	// tries plans with one fault.
	cloud string
	// corruption is the change of a field in a run that has found the bug. The hunt tries this change before a sweep of
	// corruptions. The field is set only if no other kind of run reveals the bug.
	corruption string
	// handovers means that only hand-overs of shards reveal the bug.
	handovers bool
	// planned is set if a run with planned faults finds the bug. The hunt then tries such runs before random runs.
	planned bool
}
