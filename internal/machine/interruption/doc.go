// Package interruption knows how a Node shows that the cloud is about to take its instance away: the conditions and taints
// that the common termination handlers set.
package interruption
