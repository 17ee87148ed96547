// Package fleet has the views of whole fleets: the status of everything, the tree of owners and what they own, and the
// instances without a Machine.
package fleet
