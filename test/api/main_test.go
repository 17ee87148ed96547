// Package api tests the schemas, their validation rules and defaults, and the admission policies on a real API server.
package api

import (
	"os"
	"testing"

	"machinist.dev/machinist/test/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }
