// Package source reads the objects of the systems whose fleets Machinist can take over, and converts them to
// Machinist's objects. The package has no API client and does not read the clock. A System converts one object at a
// time. The caller reads the objects and combines the results.
//
// No field is lost silently. If a field is unknown or has no counterpart in Machinist, there is a Finding with the path
// of the field.
package source
