package fakeaws

import "time"

// maxVersions limits the versions of a resource. Older versions are only needed for lags of many changes.
const maxVersions = 64

// history contains the versions of a resource, so that a read can show an earlier state.
type history[T any] struct {
	versions []version[T]
}

type version[T any] struct {
	at time.Time
	// value is nil from the time at which the resource was removed.
	value *T
}

func newHistory[T any](at time.Time, value T) *history[T] {
	return &history[T]{versions: []version[T]{{at, &value}}}
}

// current returns the present state, or nil if the resource was removed.
func (h *history[T]) current() *T { return h.versions[len(h.versions)-1].value }

// asOf returns the state at a time, or nil if the resource did not exist at that time.
func (h *history[T]) asOf(at time.Time) *T {
	for i := len(h.versions) - 1; i >= 0; i-- {
		if !h.versions[i].at.After(at) {
			return h.versions[i].value
		}
	}
	return nil
}

// previous returns the state before the last change, or the first state.
func (h *history[T]) previous() *T { return h.versions[max(0, len(h.versions)-2)].value }

// change appends a version. The function edit changes a copy, and must replace maps and slices instead of changing
// them.
func (h *history[T]) change(at time.Time, edit func(*T)) {
	now := h.current()
	if now == nil {
		return
	}
	changed := *now
	edit(&changed)
	h.versions = append(h.versions, version[T]{at, &changed})
	h.versions = h.versions[max(0, len(h.versions)-maxVersions):]
}

func (h *history[T]) remove(at time.Time) {
	if h.current() != nil {
		h.versions = append(h.versions, version[T]{at, nil})
	}
}

// removedBefore reports whether the resource was removed before a time, so that no read shows it any more.
func (h *history[T]) removedBefore(at time.Time) bool {
	last := h.versions[len(h.versions)-1]
	return last.value == nil && last.at.Before(at)
}
