// Package healthcheck finds machines with broken nodes and requests their replacement. It makes sure that machines that
// are only unreachable are not replaced.
//
// One pass checks all machines, because the health of the others decides whether a machine may be replaced. Evaluate
// checks one machine against one policy. DetectMeltdown checks all machines. Decide decides about the machines of one
// policy. The built-in policy applies to machines that no MachineHealthCheck selects, to each namespace separately.
//
// The result is the condition RemediationRequested of the Machine. This package never deletes anything.
package healthcheck
