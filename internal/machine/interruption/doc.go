// Package interruption knows how a Node announces that the cloud is about to reclaim its instance: the conditions and
// taints that the common termination handlers set.
package interruption
