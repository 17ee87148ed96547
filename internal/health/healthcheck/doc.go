// Package healthcheck finds machines with broken nodes and requests their replacement. It avoids the replacement of
// machines that are only unreachable.
//
// One pass checks all machines, because whether a machine may be replaced depends on the health of the other machines.
// Evaluate checks one machine against one policy. DetectMeltdown checks all machines. Decide determines which machines
// of one policy to remediate. The built-in policy applies to machines that no MachineHealthCheck selects, to each
// namespace separately.
//
// The result is the condition RemediationRequested of the Machine. This package never deletes anything.
package healthcheck
