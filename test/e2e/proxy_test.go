//go:build e2e

package e2e

import (
	"testing"

	"machinist.dev/machinist/test/link"
)

// newProxy stands before servers, which must be added, as a load balancer does.
func newProxy(t *testing.T) *link.Link {
	t.Helper()
	l, err := link.Listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
