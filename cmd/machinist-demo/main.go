// Command machinist-demo runs all parts of Machinist on the local host, with a simulated cloud and a sample fleet.
package main

import "machinist.dev/machinist/devel/demo"

func main() { demo.Main(demo.Sim, nil) }
