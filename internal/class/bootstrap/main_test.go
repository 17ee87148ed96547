package bootstrap

import (
	"os"
	"testing"

	"machinist.dev/machinist/test/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }
