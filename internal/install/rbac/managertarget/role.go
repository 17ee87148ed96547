// Package managertarget declares what machinist-manager may do in the target cluster.
//
// Nodes of old revisions are marked while their machines are exchanged.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
package managertarget
