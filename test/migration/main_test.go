// Package migration tests the migrator with a real API server and a simulated cloud, pass by pass. The tests cover
// invalid input, and users and old controllers that continue to act during a migration.
package migration

import (
	"os"
	"testing"

	"machinist.dev/machinist/test/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }
