package freshness

// Tracker records whether a cache may be trusted. The zero Tracker trusts no cache. A Tracker is not safe for
// concurrent use.
type Tracker struct {
	// minVersion is the resource version that the cache must have reached. "" means that there was no LIST yet.
	minVersion string
	// confirmed means that the cache was compared with live lists. Its version no longer matters.
	confirmed bool
	ambiguous int
}

// Mark identifies a position in the sequence of ambiguous writes.
type Mark struct{ ambiguous int }

// Mark returns the current position. Call it before a live LIST.
func (t *Tracker) Mark() Mark { return Mark{t.ambiguous} }

// MinVersion returns the resource version that the cache must have reached. MinVersion is "" if a live LIST is
// needed first.
func (t *Tracker) MinVersion() string { return t.minVersion }

// Trusts reports whether a cache with the given resource version may be trusted.
func (t *Tracker) Trusts(cacheVersion string) bool {
	return t.confirmed || t.minVersion != "" && AtLeastAsNew(cacheVersion, t.minVersion)
}

// Confirmed reports whether the cache may be trusted at any version.
func (t *Tracker) Confirmed() bool { return t.confirmed }

// Listed records the resource version of a live LIST that began at the mark. Listed keeps the lower version of an
// earlier LIST, unless an ambiguous write followed that LIST.
func (t *Tracker) Listed(began Mark, version string) {
	if began == t.Mark() && t.minVersion == "" {
		t.minVersion = version
	}
}

// Relisted works like Listed, but replaces the version of an earlier LIST. Use it if the next decision depends on the
// later LIST.
func (t *Tracker) Relisted(began Mark, version string) {
	if began == t.Mark() {
		t.minVersion = version
	}
}

// Confirm records that the cache was at least as new as live lists that began at the mark. Before the call, the caller
// must compare the cached objects with these lists.
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
