// Package interruption recognizes when a Node announces that the cloud is about to reclaim its instance, by the
// conditions and taints that common termination handlers set.
package interruption
