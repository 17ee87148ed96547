// Package healthcheck finds the machines whose nodes are broken and asks their owners to replace them, and sees to it
// that what is merely unreachable is left alone.
//
// All machines are judged together in one pass, since whether one may be replaced depends on how the others fare:
// Evaluate judges one machine by one policy, Melt the fleet, and Judge the machines that one policy is for. Machines
// that no MachineHealthCheck selects have the built-in policy, each namespace by itself. What follows is the
// condition RemediationRequested on the Machine: here nothing is ever deleted.
package healthcheck
