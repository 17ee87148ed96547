// Package migration tests the migrator with a real API server and a simulated cloud, one reconciliation at a time. The
// tests use invalid input, and simulate users and old controllers that make changes during a migration.
package migration

import (
	"os"
	"testing"

	"machinist.dev/machinist/test/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }
