// Package driver is the provider.Driver of AWS. A Machine is one EC2 instance. The driver sends one RunInstances
// call with a client token, so that a repeated call returns the same instance. The tags of Machinist are in this
// call, for the instance, its volumes and its network interfaces.
//
// Reads of EC2 can be outdated by minutes, in both directions. Answers to calls that change an instance are up to
// date, and the driver relies on these answers where it matters: the instance of a client token, and the power
// state.
package driver
