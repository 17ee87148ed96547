//go:build e2e

package e2e

import (
	"testing"

	"machinist.dev/machinist/test/link"
)

// newProxy returns a proxy that distributes connections to several servers, like a load balancer. The caller adds the
// servers.
func newProxy(t *testing.T) *link.Link {
	t.Helper()
	l, err := link.Listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
