// Package fleet makes the views of whole fleets: status, which is everything at a glance, and tree, which is who belongs to
// whom.
package fleet
