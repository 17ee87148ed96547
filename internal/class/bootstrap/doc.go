// Package bootstrap renders the user data of a machine, and manages the bootstrap token with which its instance joins
// the target cluster.
package bootstrap
