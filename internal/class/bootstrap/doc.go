// Package bootstrap renders the user data of machines, and manages the bootstrap tokens with which their instances join
// the target cluster.
package bootstrap
