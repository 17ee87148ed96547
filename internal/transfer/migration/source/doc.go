// Package source reads the objects of other machine controllers, and converts them to Machinist's objects. The package
// has no API client and does not read the clock. A System converts one object at a time. The caller combines the
// results.
//
// No field is lost silently. Each field that is unknown or has no counterpart in Machinist causes a Finding with its
// path.
package source
