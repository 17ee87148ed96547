// Package cli contains the commands for operators of fleets. The commands report the state of the fleets in a control
// cluster. A command changes the cluster only if the user asks for the change.
//
// Every command reads objects with a client from [Env.Connect]. A pure function then computes a view of these objects.
// Finally, [Env.Print] writes the view as text, JSON or YAML. The tests of a view therefore need no cluster, and all
// formats contain the same facts.
package cli
