// Package cli contains the commands for operators of fleets. The commands read the control cluster and report the state
// of its fleets. They write to the cluster only where the operator asks for it.
//
// Every command has the same shape. It reads objects through [Env.Connect], a pure function computes a view of them,
// and [Env.Print] writes the view as text, JSON or YAML. Tests of a view therefore need no cluster, and the JSON and
// YAML output contains the same facts as the text.
package cli
