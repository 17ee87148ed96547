// Package api tests what the API server admits of the API group, and what it makes of it: the schemas, their rules and
// the admission policies.
package api

import (
	"os"
	"testing"

	"machinist.dev/machinist/test/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }
