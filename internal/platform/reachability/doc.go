// Package reachability detects whether the API servers answer, so that an outage is not mistaken for the failure of
// machines.
//
// Each process checks the API servers itself. State contains what a process concludes about one API server from its own
// checks. Watch checks both clusters, and controllers ask it whether they may act.
package reachability
