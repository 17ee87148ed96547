// Package source reads the objects of the systems whose fleets Machinist takes over and says what they are in
// Machinist's terms. It is pure: no client, no clock. A System converts one object at a time; whoever reads the objects
// puts the results together.
//
// Nothing is dropped silently: a field that has no counterpart, and one that is not known, is a Finding with its path.
package source
