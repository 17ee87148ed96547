package capacity

import (
	"os"
	"testing"

	"machinist.dev/machinist/test/env/inmemory"
)

func TestMain(m *testing.M) { os.Exit(inmemory.Main(m)) }
