// Package installer installs provider processes. The package contains the controller of Providers.
//
// Each pass over a Provider has these steps:
//
//   - Resolve the type of the Provider: spec.type, or the platform in the provider IDs of the Nodes (detect.go). If two
//     Providers have the same type, the older one is installed (type.go).
//   - Convert the spec to values of the chart machinist-provider, and render the chart (render.go).
//   - Compare the rendered objects with the cluster (plan.go, drift.go). Apply missing and different objects, and prune
//     objects that are no longer rendered. Objects of other owners are reported, never changed (apply.go).
//   - Observe the Deployment, its pods and the holder of the Lease (process.go). Report why a rollout is stuck
//     (rollout.go).
//   - Set the conditions (conditions.go).
//
// The controller records the installed objects in status before it creates them, so a crash leaves no unknown objects.
// A pass over an installed Provider only reads.
//
// A finalizer protects a Provider while Machines or MachineClasses need its process (deletion.go).
package installer
