// Package healthcheck finds machines with broken nodes and requests their replacement. Machines that are only
// unreachable should not be replaced.
//
// One pass checks all machines, because a machine may be replaced only if enough other machines are healthy. Evaluate
// checks one machine against a policy. DetectMeltdown checks all machines. Decide selects the machines of a policy to
// remediate. The built-in policy applies to the machines of a namespace that no MachineHealthCheck selects.
//
// The result is the condition RemediationRequested of the Machine. This package never deletes anything.
package healthcheck
