// Package manifests contains objects for tests: the smallest valid object of each kind (Samples), and a table of
// invalid objects (InvalidObjects).
//
// Each entry of the table contains the component that must refuse the object, and the texts in the rejection. A cluster
// with only the CustomResourceDefinitions of Machinist admits what another component would refuse.
package manifests
