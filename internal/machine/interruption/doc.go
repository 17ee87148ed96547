// Package interruption detects Nodes that announce the removal of their instance by the cloud. Common termination
// handlers announce this with conditions and taints.
package interruption
