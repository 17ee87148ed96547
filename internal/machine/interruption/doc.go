// Package interruption detects that a Node announces the removal of its instance by the cloud. It uses the conditions
// and taints that common termination handlers set.
package interruption
