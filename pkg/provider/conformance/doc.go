// Package conformance contains a test suite that checks whether a driver follows the contract of package provider. A
// test of the driver runs the suite:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Config{
//			New:          func() (provider.Driver, error) { return acme.New() },
//			Class:        provider.Class{Spec: goodSpec, Credentials: credentials},
//			InvalidSpecs: []conformance.InvalidSpec{{Name: "no size", Spec: specWithoutSize, Field: "size"}},
//		})
//	}
//
// Some test cases need only the fields in this example. The other test cases need hooks that access the cloud without
// the driver. A hook lists the remaining resources, makes calls fail, or makes the cloud misbehave as real clouds do.
// Config.Cloud contains the hooks, and docs/reference/conformance.md lists the hooks of each case. If a hook is
// missing and Config.RequireHooks is false, the suite skips the case and lists its name. If Config.RequireHooks is
// true, a case with a missing hook fails.
//
// The suite creates real instances and deletes them again. The tags of these instances contain a cluster ID that only
// the suite uses, so the cloud may also serve other purposes. If the cloud may return outdated results, the suite
// polls until Config.Timeout has elapsed.
package conformance
