// Package source reads the objects of the systems whose fleets Machinist can take over, and converts them to
// Machinist's objects. The package has no client and no clock. A System converts one object at a time, and the caller
// that reads the objects puts the results together.
//
// Nothing is dropped silently: a field that is unknown or has no counterpart is a Finding with its path.
package source
