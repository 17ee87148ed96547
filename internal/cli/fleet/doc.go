// Package fleet computes and prints the views of whole fleets: the status, the tree of deployments, sets and machines,
// and the list of instances without a Machine.
package fleet
