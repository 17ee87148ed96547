// Package installer installs provider processes: it is the controller of Providers.
//
// A pass over a Provider goes as follows. Its type is spec.type, or what the Nodes' provider IDs show (detect.go); of
// two Providers of one type the older has it (type.go). Its spec becomes values of the chart machinist-provider, and
// the chart is rendered (render.go). The rendered objects are compared with those in the cluster (plan.go, drift.go):
// what is missing or differs is applied, what is not rendered any more is pruned, and an object that this Provider did
// not make is never touched but named in a condition (apply.go). Then the process is observed (process.go): its
// Deployment, its pods and the holder of its lease; why a rollout stands is what the kubelet or the API server says
// (rollout.go). All of it ends in three conditions (conditions.go).
//
// What is installed is recorded in status before it is made, so that a crash between the two loses nothing. Objects
// that are as rendered are not written: a pass over an installed Provider only reads.
//
// A Provider is protected by a finalizer while Machines or MachineClasses in use need its process (deletion.go).
package installer
