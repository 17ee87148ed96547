//go:build e2e

// Package e2e holds the OpenStack provider to a real OpenStack, which hack/openstack installs and starts on this machine.
package e2e

import (
	"os"
	"testing"
)

// running returns the clouds.yaml of the cloud that the package's tests share.
func running(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("OS_CLIENT_CONFIG_FILE"); path != "" {
		return path
	}
	t.Skip("no cloud")
	return ""
}
