package freshness

// Tracker records whether a cache may be trusted. The zero Tracker trusts no cache. A Tracker is not safe for
// concurrent use.
type Tracker struct {
	// minVersion is the resource version that the cache must have reached. "" means that there was no LIST yet.
	minVersion string
	// confirmed is true after the cache was compared with live lists. The version of the cache then no longer matters.
	confirmed bool
	ambiguous int
}

// Mark identifies a position in the sequence of ambiguous writes.
type Mark struct{ ambiguous int }

// Mark returns the current position. Call Mark before a live LIST.
func (t *Tracker) Mark() Mark { return Mark{t.ambiguous} }

// MinVersion returns the resource version that the cache must have reached. MinVersion is "" if a live LIST is
// needed first.
func (t *Tracker) MinVersion() string { return t.minVersion }

// Trusts reports whether a cache that has reached the given resource version contains all earlier writes, so that a
// controller may decide from it.
func (t *Tracker) Trusts(cacheVersion string) bool {
	return t.confirmed || t.minVersion != "" && AtLeastAsNew(cacheVersion, t.minVersion)
}

// IsConfirmed reports whether Confirm was called and no ambiguous write followed. The cache may then be trusted
// without a comparison of resource versions.
func (t *Tracker) IsConfirmed() bool { return t.confirmed }

// RecordList records the resource version of a live LIST. The mark was taken before this LIST. If RecordList already
// recorded a version, it keeps that lower version, unless an ambiguous write has discarded it.
func (t *Tracker) RecordList(began Mark, version string) {
	if began == t.Mark() && t.minVersion == "" {
		t.minVersion = version
	}
}

// RecordRelist records the resource version like RecordList, but replaces the version of an earlier LIST. Call
// RecordRelist if the next decision needs a cache that is at least as new as this LIST.
func (t *Tracker) RecordRelist(began Mark, version string) {
	if began == t.Mark() {
		t.minVersion = version
	}
}

// Confirm records that the cache contained all objects of live lists. The caller must have taken the mark before these
// lists, and must have compared their objects with the cached objects.
func (t *Tracker) Confirm(began Mark) {
	if began == t.Mark() {
		t.confirmed = true
	}
}

// Invalidate records an ambiguous write: the cache may not be trusted until the next live LIST.
func (t *Tracker) Invalidate() {
	t.minVersion, t.confirmed = "", false
	t.ambiguous++
}
