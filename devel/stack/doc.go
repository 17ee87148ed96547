// Package stack runs a complete Machinist on this machine: one or two real control planes, the simulated cloud, the
// manager and the provider. All of them are child processes on loopback. The demo and the end-to-end tests use a Stack.
package stack
