// Package migratortarget declares the permissions of a migrator in the target cluster. It reads Nodes, and removes data
// of the old system from them, or data of Machinist if the migration is aborted.
//
// If the API server enforces permissions for owner references, a change of owners requires the permission to delete.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;patch;delete
package migratortarget
