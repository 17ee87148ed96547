// Package migration tests the migrator with a real API server and a simulated cloud, pass by pass. The tests use
// invalid input, and they simulate users and old controllers that continue to make changes during a migration.
package migration

import (
	"os"
	"testing"

	"machinist.dev/machinist/test/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }
