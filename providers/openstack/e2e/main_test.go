//go:build e2e

// Package e2e tests the OpenStack provider with a real OpenStack, which hack/openstack unpacks and starts on this host.
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

// sharedCloud contains the cloud of all tests, which takes a minute to start.
var sharedCloud struct {
	once  sync.Once
	cloud *openstack.Cloud
	dir   string
	err   error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if sharedCloud.cloud != nil {
		if err := sharedCloud.cloud.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop OpenStack:", err)
			code = 1
		}
	}
	if sharedCloud.dir != "" && code == 0 {
		_ = os.RemoveAll(sharedCloud.dir)
	}
	os.Exit(code)
}

func cloud(t *testing.T) *openstack.Cloud {
	t.Helper()
	sharedCloud.once.Do(func() {
		if sharedCloud.dir, sharedCloud.err = os.MkdirTemp("", "openstack-"); sharedCloud.err == nil {
			sharedCloud.cloud, sharedCloud.err = openstack.Start(context.Background(),
				openstack.Options{Dir: sharedCloud.dir, Output: os.Stderr})
		}
	})
	if sharedCloud.cloud == nil {
		t.Fatal(errors.Join(errors.New("OpenStack did not start"), sharedCloud.err))
	}
	return sharedCloud.cloud
}

// configFile names the environment variable with the path of a clouds.yaml, as in OpenStack's own client.
const configFile = "OS_CLIENT_CONFIG_FILE"

// cloudsYAML returns the path in the variable configFile or, if it is not set, the clouds.yaml of the shared cloud.
func cloudsYAML(t *testing.T) string {
	t.Helper()
	if path := os.Getenv(configFile); path != "" {
		return path
	}
	return cloud(t).CloudsYAML()
}

func fullRun() bool { return os.Getenv("FULL") != "" }
