// Command machinist-demo-azure-fake is machinist-demo with the Azure provider on an Azure in memory.
package main

import (
	"machinist.dev/machinist/devel/demo"
	"machinist.dev/machinist/providers/azure/backend"
)

func main() { demo.Main("azure-fake", &backend.Azure{}) }
