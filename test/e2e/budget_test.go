//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/controlplane/auditlog"
	"machinist.dev/machinist/internal/stack"
	"machinist.dev/machinist/simcloud"
)

// What a fleet costs the API server, counted in its own audit log: everything that our two processes wrote, and nothing
// of what nodes and Kubernetes' own controllers did.
//
// Rule: four-writes-to-running.
func TestWritesPerMachineAreWithinTheBudget(t *testing.T) {
	const machines = 100
	const perMachine = 5 + 0.3 // five of its own, and its share of the status of set and deployment
	m := start(t, stack.Options{ClusterApproves: true})
	m.quick()
	log, err := auditlog.Open(m.Control.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	ours := auditlog.Filter{Users: []string{stack.Manager, stack.Provider}}
	count := func(what string) auditlog.Counts {
		t.Helper()
		counts, err := log.Count(ours)
		if err != nil {
			t.Fatal(err)
		}
		conflicts, err := log.Requests(auditlog.Filter{Users: ours.Users, Match: func(r auditlog.Request) bool {
			return r.Code == http.StatusConflict
		}})
		if err != nil {
			t.Fatal(err)
		}
		byKind := map[string]int{}
		for _, r := range conflicts {
			byKind[r.User+" "+r.Verb+" "+r.Resource+"/"+r.Subresource]++
		}
		t.Logf("conflicts: %v", byKind)
		t.Logf("%s: %.2f writes and %.2f events per machine\n%s", what, float64(counts.Writes)/machines,
			float64(counts.Events)/machines, counts)
		return counts
	}
	mark := func() {
		t.Helper()
		if err := log.Mark(); err != nil {
			t.Fatal(err)
		}
	}

	// All nodes join with one token made beforehand: no token is made for each.
	token := m.sharedToken()
	m.fleet(0, func(o client.Object) {
		if s, ok := o.(*corev1.Secret); ok && s.Name == examples.UserDataSecret {
			replaceUserData(s, "<<BOOTSTRAP_TOKEN>>", token)
		}
	})
	m.settled()
	// A cloud that answers at once, and one whose instances are pending for longer than a check them takes.
	for _, boot := range []time.Duration{0, 1500 * time.Millisecond} {
		bootTime := simcloud.Duration(boot)
		m.settings(simcloud.SettingsPatch{BootTime: &bootTime})
		before := len(m.instances())
		mark()
		m.scale(machines)
		m.running(machines)
		m.settled()
		created := count(fmt.Sprintf("create with a boot time of %s", boot))
		if writes := float64(created.Writes) / machines; writes > perMachine {
			t.Errorf("%.2f writes per machine created, the budget is %.1f", writes, perMachine)
		}
		if events := float64(created.Events) / machines; events > 0.1 {
			t.Errorf("%.2f events per machine created, the budget is a few for the set", events)
		}
		if made := len(m.instances()) - before; made != machines {
			t.Errorf("%d instances were made for %d machines", made, machines)
		}
		if n := created.ByCall[auditlog.Call{Verb: "create", Group: v1beta1.GroupName, Resource: "machines"}]; n != machines {
			t.Errorf("%d Machines were created for %d asked", n, machines)
		}

		mark()
		m.scale(0)
		m.none()
		m.settled()
		deleted := count(fmt.Sprintf("delete with a boot time of %s", boot))
		if writes := float64(deleted.Writes) / machines; writes > perMachine {
			t.Errorf("%.2f writes per machine deleted, the budget is %.1f", writes, perMachine)
		}
		if events := float64(deleted.Events) / machines; events > 1+2.0/machines {
			t.Errorf("%.2f events per machine deleted, the budget is 1 and two for the set", events)
		}
		if n := m.live(); n != 0 {
			t.Errorf("%d instances are left", n)
		}
	}
}

// settled waits until our processes have written nothing for a while, so that a count ends with what belongs to it.
func (m *machinist) settled() {
	m.t.Helper()
	log, err := auditlog.Open(m.Control.AuditLog())
	if err != nil {
		m.t.Fatal(err)
	}
	last, since := -1, time.Now()
	eventually(m.t, "nothing is written any more", func() (bool, string) {
		counts, err := log.Count(auditlog.Filter{Users: []string{stack.Manager, stack.Provider}})
		if err != nil {
			return false, err.Error()
		}
		if n := counts.Writes + counts.Events; n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 4*time.Second, counts.String()
	})
}

// sharedToken makes a bootstrap token that belongs to no machine.
func (m *machinist) sharedToken() string {
	m.t.Helper()
	err := m.target.Create(context.Background(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-shared"},
		Type:       "bootstrap.kubernetes.io/token",
		StringData: map[string]string{
			"token-id": "shared", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
			"expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		},
	})
	if err != nil {
		m.t.Fatalf("make a token: %v", err)
	}
	return "shared.0123456789abcdef"
}

func replaceUserData(s *corev1.Secret, old, replacement string) {
	for key, value := range s.StringData {
		s.StringData[key] = strings.ReplaceAll(value, old, replacement)
	}
	for key, value := range s.Data {
		s.Data[key] = []byte(strings.ReplaceAll(string(value), old, replacement))
	}
}
