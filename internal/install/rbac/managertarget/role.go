// Package managertarget declares the permissions of machinist-manager in the target cluster.
//
// Health checks read Nodes.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
package managertarget
