// Package migratortarget declares what a migrator may do in the target cluster: read Nodes, and remove from them what the
// old system left, or what Machinist left when a migration is aborted.
//
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;patch
package migratortarget
