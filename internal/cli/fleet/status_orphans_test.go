package fleet

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/health/orphans/ledger"
)

// Rule: status-names-orphans.
func TestStatusReportsOrphansAsProblem(t *testing.T) {
	blocked := v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "shared", Name: "small"}}
	blocked.Status.Conditions = []metav1.Condition{cond(v1beta1.ConditionOrphanRemovalBlocked, metav1.ConditionTrue,
		v1beta1.ReasonMostInstancesOrphaned, "3 instances have no Machine.", time.Minute)}
	page := ledger.Page{Provider: "sim", Period: 1800, Total: 1, Entries: []ledger.Entry{{ProviderID: "sim://1",
		Machine: "prod/lost", UID: "u", FirstSeen: now.Add(-40 * time.Minute), Outcome: "MostOrphaned"}}}
	for name, c := range map[string]struct {
		change func(*Facts)
		wants  []string
	}{
		"the class of another namespace": {func(f *Facts) { f.Classes = append(f.Classes, blocked) },
			[]string{"machineclass/small", "3 instances have no Machine."}},
		"instances of the namespace": {func(f *Facts) {
			f.Orphans = OrphansOf(now, "prod", []ledger.Page{page}, nil).Reports
		}, []string{"INSTANCE WITHOUT MACHINE", "sim://1", "lost", "40m ago", "until an administrator confirms"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy()
			c.change(&f)
			var out strings.Builder
			if err := StatusOf(f).Text(&out, printer.Style{}); err != nil {
				t.Fatal(err)
			}
			for _, want := range append(c.wants, "The tables above list other problems") {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is missing in\n%s", want, out.String())
				}
			}
		})
	}
}
