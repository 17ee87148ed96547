package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/internal/health/orphans/ledger"
)

// Rule: status-names-orphans.
func TestStatusShowsOrphansInNamespaceOfTags(t *testing.T) {
	p := newTestFleet(t)
	page := ledger.Page{Provider: "sim", WriteTime: time.Now(), Period: 1800, Total: 2, Entries: []ledger.Entry{
		{ProviderID: "sim://1", Machine: p.namespace + "/lost", UID: "u", Source: "shared/small", FirstSeen: time.Now(),
			Outcome: "MostOrphaned"},
		{ProviderID: "sim://2", Machine: "elsewhere/m", UID: "v", Source: "shared/small", FirstSeen: time.Now(),
			Outcome: "Delete"},
	}}
	if err := (ledger.Store{Client: p.api, Namespace: p.namespace}).Keep(context.Background(), page); err != nil {
		t.Fatal(err)
	}
	mine := p.run("status").succeeds(t).prints(t, "sim://1", "lost", "kept until an administrator confirms the removal")
	if strings.Contains(mine.out, "sim://2") {
		t.Errorf("wrote\n%s", mine.out)
	}
	p.run("status", "-A", "--system-namespace", p.namespace).succeeds(t).prints(t, "sim://1", "sim://2", "elsewhere")
	p.run("status", "-o", "json").succeeds(t).prints(t, `"instance": "sim://1"`, `"outcome": "MostOrphaned"`)
}
