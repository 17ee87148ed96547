// Package why says in plain words what machines and fleets wait for: since when, until when or what ends it, and what a
// person can do.
//
// It is pure: what was read goes in as facts, findings come out. Whatever the controllers say by a reason of a
// condition has a sentence here, in one table.
package why
