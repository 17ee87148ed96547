// Package conformance holds a driver to the contract of package provider. A driver's own test runs it:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Config{
//			New:          func() (provider.Driver, error) { return acme.New() },
//			Class:        provider.Class{Spec: goodSpec, Credentials: credentials},
//			InvalidSpecs: []conformance.InvalidSpec{{Name: "no size", Spec: specWithoutSize, Field: "size"}},
//		})
//	}
//
// The cases that docs/provider-guide.md lists without a need run with no more than that. The others need the author's
// help to reach the cloud past the driver: to list what is left in it, to let calls fail, or to let the cloud behave
// as clouds do. Those hooks are in Cloud; a case whose hook is missing is skipped by name, or fails where Config.Full
// is set.
//
// The suite makes real instances and deletes them again. It may run against a cloud that is in use: everything it
// makes carries a cluster id of its own. What a cloud shows late is polled for until Config.Timeout; nothing waits
// longer than it has to.
package conformance
