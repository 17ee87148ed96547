// Package bootstrap makes what an instance needs to join the target cluster: user data rendered for one machine, and
// the bootstrap token in it.
package bootstrap
