// Package stack runs a complete Machinist on this machine: one or two real control planes, the simulated cloud, the
// manager and the provider. All of them are child processes on loopback. The demo uses a Stack, and the end-to-end
// tests kill and freeze parts of one.
package stack
