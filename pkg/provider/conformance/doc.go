// Package conformance tests whether a driver follows the contract of package provider. A driver's own test runs it:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Config{
//			New:          func() (provider.Driver, error) { return acme.New() },
//			Class:        provider.Class{Spec: goodSpec, Credentials: credentials},
//			InvalidSpecs: []conformance.InvalidSpec{{Name: "no size", Spec: specWithoutSize, Field: "size"}},
//		})
//	}
//
// Some cases need nothing else; docs/reference/conformance.md lists them without a need. The other cases need
// hooks that reach the cloud without the driver: to list what is left in it, to let calls fail, or to let it behave as
// clouds do. Config.Cloud contains these hooks. If a hook is missing, the suite skips the case and lists it by name, or
// fails it if Config.Full is set.
//
// The suite creates real instances and deletes them again. It may run against a cloud that is in use, because
// everything that it creates carries a cluster ID of its own. It polls for what the cloud shows late, until
// Config.Timeout.
package conformance
