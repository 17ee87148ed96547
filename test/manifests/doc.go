// Package manifests contains objects for tests: the smallest valid object of each kind (Samples), and a table of
// invalid objects that must be refused (All).
//
// Each invalid object names the texts that its rejection must contain and the component that refuses it. The component
// also shows which of the objects a cluster accepts that has only the CustomResourceDefinitions of Machinist.
package manifests
