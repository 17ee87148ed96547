// Package installer installs provider processes. It is the controller of Providers.
//
// A pass over a Provider has these steps:
//
//   - It resolves the type of the Provider, which is spec.type or follows from the provider IDs of the Nodes
//     (detect.go). Of two Providers with one type, the older one has it (type.go).
//   - It converts the spec to values of the chart machinist-provider, and renders the chart (render.go).
//   - It compares the rendered objects with those in the cluster (plan.go, drift.go). Objects that are missing or
//     different are applied. Objects that are no longer rendered are pruned. Objects that this Provider did not create
//     are never changed, but named in a condition (apply.go).
//   - It observes the process: its Deployment, its pods and the holder of its Lease (process.go). If a rollout is
//     stuck, the kubelet or the API server reports why (rollout.go).
//   - It sets three conditions (conditions.go).
//
// The controller records the installed objects in status before it creates them. Therefore all installed objects
// are known even after a crash between the two steps. The controller does not write objects that are already equal
// to the rendered objects, so a pass over an installed Provider only reads.
//
// A finalizer protects a Provider while Machines or MachineClasses need its process (deletion.go).
package installer
