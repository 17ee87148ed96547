// Package fleet computes and prints views of whole fleets: the status, the tree of objects, and the instances without a
// Machine.
package fleet
