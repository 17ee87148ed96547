package driver_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/fakeazure"
)

// Rule: remaining-parts-named.
func TestDeleteReportsRemainingPartsWithAzureAnswer(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	req := request("a", class())
	in, err := c.driver().Create(t.Context(), req)
	c.must(err)
	c.KeepParts()
	del := deletion(req)
	del.ProviderID, del.Scope = in.ProviderID, in.Scope
	end := c.Inject(fakeazure.Fault{Operation: "Disks_Delete", Status: http.StatusConflict, Code: "OperationNotAllowed",
		Message: "There is an active shared access signature outstanding."})
	left := ""
	for range 20 {
		result, err := c.driver().Delete(t.Context(), del)
		c.must(err)
		if result.Gone {
			t.Fatal("Delete reported Gone although a disk still exists")
		}
		if left = result.Remaining; left == "" {
			t.Error("Delete did not report what is left")
		}
	}
	if !strings.Contains(left, "disk ") ||
		!strings.Contains(left, ": OperationNotAllowed There is an active shared access signature outstanding.") {
		t.Errorf("got Left %q, want the disk with the answer of Azure", left)
	}
	end()
	end = c.Inject(fakeazure.Fault{Operation: "Disks_Delete", Status: http.StatusTooManyRequests,
		Code: "OperationNotAllowed", RetryAfter: 17})
	if _, err := c.driver().Delete(t.Context(), del); provider.RetryAfter(err) != 17*time.Second {
		t.Errorf("throttled deletion: got %v, want RetryAfter 17s", err)
	}
	end()
	c.awaitGone(c.driver(), del)
}
