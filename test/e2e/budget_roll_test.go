//go:build e2e

package e2e

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/controlplane/auditlog"
	"machinist.dev/machinist/internal/stack"
)

// What a rolling update costs the API server for each machine that is replaced, at a cloud that answers at once: the
// old machine's end, the new one's beginning, one mark on the old Node, and a share of what the sets and the
// deployment write.
//
// Rule: outdated-node-taints.
func TestWritesPerMachineReplacedAreWithinTheBudget(t *testing.T) {
	const machines, surge = 100, 10
	const writesEach = 12.5
	const eventsEach = 2.0
	m := start(t, stack.Options{ClusterApproves: true})
	m.quick()
	log, err := auditlog.Open(m.Control.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	token := m.sharedToken()
	m.fleet(machines, func(o client.Object) {
		switch o := o.(type) {
		case *corev1.Secret:
			if o.Name == examples.UserDataSecret {
				replaceUserData(o, "<<BOOTSTRAP_TOKEN>>", token)
			}
		case *v1beta1.MachineDeployment:
			o.Spec.Strategy.RollingUpdate = &v1beta1.RollingUpdate{MaxSurge: ptr.To(intstr.FromInt32(surge)),
				MaxUnavailable: ptr.To(intstr.FromInt32(0))}
		}
	})
	m.running(machines)
	m.settled()
	if err := log.Mark(); err != nil {
		t.Fatal(err)
	}

	m.rollTo(examples.LargeClass)
	m.classes("all of the new class", map[string]int{examples.LargeClass: machines})
	m.settled()
	users := []string{stack.Manager, stack.Provider}
	counts, err := log.Count(auditlog.Filter{Users: users})
	if err != nil {
		t.Fatal(err)
	}
	writes, events := float64(counts.Writes)/machines, float64(counts.Events)/machines
	t.Logf("%.2f writes, %.2f events and %.2f conflicts per machine replaced\n%s", writes, events,
		float64(counts.Conflicts)/machines, counts)
	conflicts, err := log.Requests(auditlog.Filter{Users: users, Match: func(r auditlog.Request) bool {
		return r.Code == http.StatusConflict
	}})
	if err != nil {
		t.Fatal(err)
	}
	refused := map[string]int{}
	for _, r := range conflicts {
		refused[strings.TrimSuffix(r.User+" "+r.Verb+" "+r.Resource+"/"+r.Subresource, "/")]++
	}
	t.Logf("conflicts: %v", refused)
	if writes > writesEach {
		t.Errorf("%.2f writes per machine replaced, the budget is %.1f", writes, writesEach)
	}
	if events > eventsEach {
		t.Errorf("%.2f events per machine replaced, the budget is %.1f", events, eventsEach)
	}
	marks, err := log.Requests(auditlog.Filter{Users: []string{stack.Manager}, Match: func(r auditlog.Request) bool {
		return r.Verb == "patch" && r.Resource == "nodes" && r.Code < 300
	}})
	if err != nil {
		t.Fatal(err)
	}
	patched := map[string]int{}
	for _, r := range marks {
		patched[r.Name]++
	}
	for name, n := range patched {
		if n != 1 {
			t.Errorf("node %s was patched %d times for its mark", name, n)
		}
	}
	if len(patched) != machines {
		t.Errorf("%d nodes were marked, expected the %d old ones", len(patched), machines)
	}
	if made := len(m.instances()); made != 2*machines {
		t.Errorf("%d instances were made for %d machines and their successors", made, machines)
	}
	m.noTwins()
}
