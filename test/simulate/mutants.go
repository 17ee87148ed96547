package main

// mutant is a bug that a developer might introduce. A useful simulation finds all of them.
type mutant struct {
	name string
	// The bug replaces the text from by the text to. The old text must occur exactly once in the file.
	file, from, to string
	// alsoRemoved is a second defense. Both defenses are removed together, because the second one would hide the bug.
	alsoRemoved *mutant
	// removeDimension contains source changes that remove the dimension of the world for which the bug was added.
	// removeDimension is set only if no flag can do this.
	removeDimension []*mutant
	// quick means that many runs find the bug, so that the first violation takes only seconds. CI plants an even sample
	// of the quick bugs.
	quick    bool
	scenario string
	finds    string
	// seed is a seed that has found a rare bug, or the seed of plan. This seed is tried first, and usually finds the
	// bug until the controllers change.
	seed int
	// plan is a plan that has found the bug. The hunt tries this plan before a sweep of plans. Its seed is in the field
	// seed, by default 1.
	plan string
	// cloud contains the cloud semantics that reveal the bug. In this cloud, the search tries plans with one fault.
	cloud string
	// corruption is a corruption that has found the bug. This corruption is tried before a sweep of corruptions. The
	// field is set only if no other kind of run reveals the bug.
	corruption string
	// handovers means that only hand-overs of shards reveal the bug.
	handovers bool
	// planned means that a sweep of plans finds the bug. The sweep runs before random runs.
	planned bool
}
