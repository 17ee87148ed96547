package main

// mutant is a bug that a developer might introduce. A useful simulation finds all of them.
type mutant struct {
	name string
	// To plant the bug, the text in the field from is replaced by the text in the field to. The old text must occur
	// exactly once in the file.
	file, from, to string
	// alsoRemoved is another change that is planted together with this bug. This change removes a second check, which
	// would hide the bug.
	alsoRemoved *mutant
	// removeDimension contains source changes that turn off a feature of the simulation: the feature that was added to
	// find this bug. removeDimension is set only if no flag can turn off this feature.
	removeDimension []*mutant
	// quick means that many runs find the bug, so that the first violation takes only seconds. CI plants an even sample
	// of the quick bugs.
	quick    bool
	scenario string
	finds    string
	// seed is the random seed of a run that has found a rare bug, or the seed for the field plan. The search tries this
	// seed first. The seed usually finds the bug again until the controllers change.
	seed int
	// plan contains the faults of a run that has found the bug. The hunt tries this plan before a sweep of plans. The
	// plan runs with the field seed, or with the seed 1.
	plan string
	// cloud names the cloud semantics without which the bug is not found. In this cloud, the search tries plans with
	// one fault.
	cloud string
	// corruption is the change of one field that has found the bug. The hunt tries this change before a sweep of
	// corruptions. The field is set only if no other kind of run reveals the bug.
	corruption string
	// handovers means that only hand-overs of shards reveal the bug.
	handovers bool
	// planned means that a sweep of plans finds the bug. The sweep runs before random runs.
	planned bool
}
