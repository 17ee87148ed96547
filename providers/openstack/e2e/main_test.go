//go:build e2e

// Package e2e holds the OpenStack provider to a real OpenStack, which hack/openstack unpacks and starts on this
// machine.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"machinist.dev/machinist/hack/openstack"
)

// shared is the cloud that all tests of the package use. It takes a minute to start.
var shared struct {
	once  sync.Once
	cloud *openstack.Cloud
	dir   string
	err   error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.cloud != nil {
		if err := shared.cloud.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop OpenStack:", err)
			code = 1
		}
	}
	if shared.dir != "" && code == 0 {
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// cloud returns the one that the package's tests share.
func cloud(t *testing.T) *openstack.Cloud {
	t.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "openstack-"); shared.err == nil {
			shared.cloud, shared.err = openstack.Start(context.Background(),
				openstack.Options{Dir: shared.dir, Output: os.Stderr})
		}
	})
	if shared.cloud == nil {
		t.Fatal(errors.Join(errors.New("OpenStack did not start"), shared.err))
	}
	return shared.cloud
}

// configFile names a clouds.yaml, as OpenStack's own client reads it.
const configFile = "OS_CLIENT_CONFIG_FILE"

// cloudsYAML describes the cloud that the driver is held to: the shared one, or that of configFile.
func cloudsYAML(t *testing.T) string {
	t.Helper()
	if path := os.Getenv(configFile); path != "" {
		return path
	}
	return cloud(t).CloudsYAML()
}

// everything reports whether the long tests are to run too.
func everything() bool { return os.Getenv("FULL") != "" }
