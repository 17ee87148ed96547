// Package reachability detects whether the API servers answer, so that an outage is not mistaken for the failure of
// machines.
//
// Each process checks the API servers itself. State is the result of these checks for one API server. Watch checks
// both clusters, and reports to controllers whether they may act.
package reachability
