// Package fleet makes the views of whole fleets: status, which is everything at a check, and tree, which is who
// belongs to which other object.
package fleet
