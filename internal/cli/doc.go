// Package cli contains the commands for operators of fleets. The commands read the control cluster and report the state
// of its fleets. A command writes to the cluster only if the operator requests a change.
//
// Every command has three steps. First it reads objects with a client from [Env.Connect]. Then a pure function computes
// a view of these objects. Finally [Env.Print] writes the view as text, JSON or YAML. Therefore the tests of a view
// need no cluster, and the JSON and YAML output contains the same facts as the text.
package cli
