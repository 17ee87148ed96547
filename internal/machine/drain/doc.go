// Package drain evicts the pods of a Node before its machine is deleted or updated, and waits until the volumes are
// detached.
//
// The decisions are pure functions. [Plan] decides what happens to every pod of a node and why. Similar functions
// decide for which volumes the drain waits. [Controller] reads the inputs of these functions from the target cluster
// and applies their decisions. Between two checks, the controller remembers only what the API does not store: the
// evictions that the API server refused, and the times of the next attempts.
//
// The Machine reconciler calls [Controller.Drain] and then [Controller.VolumesDetached] in each reconciliation, and
// writes their results into the machine's conditions. The workers of this package do everything else. When the outcome
// of a drain changes, the workers trigger the Machine reconciler through [Controller.Triggers]. Nothing is reported
// before the first check of the Node, so an empty node causes no extra write.
//
// After a restart, the controller rebuilds its state from the API. Only three facts are lost: which evictions were
// refused, which controllers owned the evicted pods, and since when attached volumes have been unused. The start of the
// drain is the transition time of the machine's Drained condition.
package drain
