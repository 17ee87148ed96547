package machine

import (
	"os"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/test/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// administrator is one client for all tests: each new one would ask the API server for all it serves.
var administrator = sync.OnceValues(func() (client.WithWatch, error) {
	return client.NewWithWatch(env.Config(), client.Options{Scheme: env.Scheme()})
})
