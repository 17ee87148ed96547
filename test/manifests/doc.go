// Package manifests contains objects for tests: the smallest valid object of each kind (Samples), and a table of
// invalid objects that must be refused (All).
//
// For each invalid object, the table contains the texts that the rejection must contain, and the component that must
// refuse the object. A cluster that has only the CustomResourceDefinitions of Machinist accepts the objects that
// another component would refuse.
package manifests
