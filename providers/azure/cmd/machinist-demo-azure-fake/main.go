// Command machinist-demo-azure-fake runs machinist-demo with the Azure provider on a fake Azure.
package main

import (
	"machinist.dev/machinist/devel/demo"
	"machinist.dev/machinist/providers/azure/backend"
)

func main() { demo.Main("azure-fake", &backend.Azure{}) }
