// Package stack runs a whole Machinist on this machine: one or two real control planes, the simulated cloud, the
// manager and the provider, all as child processes on loopback. The demo is one, and the end-to-end tests kill and
// freeze parts of another.
package stack
