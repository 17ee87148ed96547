// Package migration tests a migrator against a real API server and a simulated cloud, pass by pass: what it does about
// input that is not as it should be, and about people and old controllers that go on.
package migration

import (
	"os"
	"testing"

	"machinist.dev/machinist/test/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }
