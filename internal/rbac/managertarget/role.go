// Package managertarget declares what machinist-manager may do in the target cluster.
//
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
package managertarget
