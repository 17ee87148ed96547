// Package cli is the command line for people who run fleets: it reads the control cluster and says what the fleet
// does, and writes no more than what a person asks for.
//
// Every command has the same shape. It reads objects through [Env.Connect], a pure function makes a view of them, and
// [Env.Print] writes the view as text, JSON or YAML. So what is printed can be tested without a cluster, and what
// programs read is what people read.
package cli
