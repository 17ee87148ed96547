// Package migratortarget declares what a migrator may do in the target cluster: read Nodes, and remove from them what
// the old system left, or what Machinist left when a migration is aborted.
//
// Who changes the owners of an object needs the right to delete it where the API server enforces that.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;patch;delete
package migratortarget
