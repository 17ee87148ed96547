package move

import (
	"os"
	"testing"

	"machinist.dev/machinist/test/env"
)

// atEnd is called when all tests are over.
var atEnd []func()

func TestMain(m *testing.M) {
	code := env.Main(m)
	for _, end := range atEnd {
		end()
	}
	os.Exit(code)
}
