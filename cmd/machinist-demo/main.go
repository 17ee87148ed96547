// Command machinist-demo runs a whole Machinist on this machine, with a simulated cloud and a sample fleet.
package main

import "machinist.dev/machinist/devel/demo"

func main() { demo.Main(demo.Sim, nil) }
