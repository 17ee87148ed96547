// Package managertarget declares the permissions of machinist-manager in the target cluster.
//
// Nodes of old revisions are tainted while their machines are replaced.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
package managertarget
