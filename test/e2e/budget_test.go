//go:build e2e

package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/devel/controlplane/auditlog"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/simcloud"
)

// What a fleet costs the API server, counted in its own audit log: everything that our two processes wrote, and nothing
// of what nodes and Kubernetes' own controllers did. The statuses of sets and deployments are counted separately,
// because how often they are written depends on how long things take.
//
// Rules: four-writes-to-running, outdated-node-taints.
func TestWritesPerMachineAreWithinTheBudget(t *testing.T) {
	const machines, surge = 100, 10
	t.Setenv("CONTROLPLANE_GOMAXPROCS", "") // Nothing runs beside it.
	m := &budgeted{machinist: start(t, stack.Options{ClusterApproves: true}), machines: machines}
	m.quick()
	var err error
	if m.log, err = auditlog.Open(m.Control.AuditLog()); err != nil {
		t.Fatal(err)
	}
	// All nodes join with one token made beforehand: no token is made for each.
	token := m.sharedToken()
	m.fleet(0, func(o client.Object) {
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
	m.settled()
	m.creation("create at a cloud that answers at once")
	m.exchange("exchange at a cloud that answers at once")
	m.deletion("delete at a cloud that answers at once")
	// Instances are pending for longer than a check of them takes.
	boots := simcloud.Duration(1500 * time.Millisecond)
	m.settings(simcloud.SettingsPatch{BootTime: &boots})
	m.creation("create with instances that boot for 1.5s")
	m.deletion("delete after that")
}

// budgeted counts what a fleet costs.
type budgeted struct {
	*machinist
	machines int
	log      *auditlog.Log
}

// ourUsers are who our two processes are to the API server.
var ourUsers = []string{stack.Manager, stack.Provider}

// cost makes a change, waits until it has settled, and holds what our processes wrote for it against a budget for each
// machine.
func (m *budgeted) cost(what string, writes, events float64, change func()) auditlog.Counts {
	m.t.Helper()
	if err := m.log.Mark(); err != nil {
		m.t.Fatal(err)
	}
	began := time.Now()
	change()
	m.settled()
	took := time.Since(began)
	counts, err := m.log.Count(auditlog.Filter{Users: ourUsers})
	if err != nil {
		m.t.Fatal(err)
	}
	summaries := counts.ByCall[summaryCall("machinesets")] + counts.ByCall[summaryCall("machinedeployments")]
	writesEach := float64(counts.Writes-summaries) / float64(m.machines)
	eventsEach := float64(counts.Events) / float64(m.machines)
	m.t.Logf("%s: %.2f writes and %.2f events per machine, and %d summaries in %s\n%s",
		what, writesEach, eventsEach, summaries, took.Round(time.Second), counts)
	conflicts := map[string]int{}
	for _, r := range m.requests(func(r auditlog.Request) bool { return r.Code == http.StatusConflict }) {
		conflicts[strings.TrimSuffix(r.User+" "+r.Verb+" "+r.Resource+"/"+r.Subresource, "/")]++
	}
	m.t.Logf("conflicts: %v", conflicts)
	if writesEach > writes {
		m.t.Errorf("%s: %.2f writes per machine, the budget is %.1f", what, writesEach, writes)
	}
	if limit := summaryLimit(took); summaries > limit {
		m.t.Errorf("%s: %d writes of the statuses of sets and deployments in %s, the budget is %d", what, summaries, took, limit)
	}
	if eventsEach > events {
		m.t.Errorf("%s: %.2f events per machine, the budget is %.2f", what, eventsEach, events)
	}
	return counts
}

// summaryCall is a write of the status of a set or a deployment.
func summaryCall(resource string) auditlog.Call {
	return auditlog.Call{Verb: "patch", Group: v1beta1.GroupName, Resource: resource, Subresource: "status"}
}

// summaryLimit is how many writes of the statuses of two sets and a deployment a change may need that took so long.
// While only numbers change, a set writes its status every two seconds at most, and a deployment every second; the rest
// are changes of conditions.
func summaryLimit(took time.Duration) int {
	return 2*int(took.Seconds()) + 12
}

// requests are those of our processes since the last change for which match is true.
func (m *budgeted) requests(match func(auditlog.Request) bool) []auditlog.Request {
	m.t.Helper()
	requests, err := m.log.Requests(auditlog.Filter{Users: ourUsers, Match: match})
	if err != nil {
		m.t.Fatal(err)
	}
	return requests
}

// perMachine are five writes of its own, and its share of what sets and deployments write besides their statuses.
const perMachine = 5 + 0.1

func (m *budgeted) creation(what string) {
	m.t.Helper()
	before := len(m.instances())
	created := m.cost(what, perMachine, 0.1, func() { // Events are a few of the set.
		m.scale(int32(m.machines))
		m.running(m.machines)
	})
	if made := len(m.instances()) - before; made != m.machines {
		m.t.Errorf("%s: %d instances were made for %d machines", what, made, m.machines)
	}
	if n := created.ByCall[auditlog.Call{Verb: "create", Group: v1beta1.GroupName, Resource: "machines"}]; n != m.machines {
		m.t.Errorf("%s: %d Machines were created for %d asked", what, n, m.machines)
	}
}

// exchange is a rolling update: the old machine's end, the new one's beginning, one mark on the old Node, and a share
// of what the sets and the deployment write besides their statuses.
func (m *budgeted) exchange(what string) {
	m.t.Helper()
	before := len(m.instances())
	m.cost(what, 12.5, 2, func() {
		m.rollTo(examples.LargeClass)
		m.classes("all of the new class", map[string]int{examples.LargeClass: m.machines})
	})
	patched := map[string]int{}
	for _, r := range m.requests(func(r auditlog.Request) bool {
		return r.User == stack.Manager && r.Verb == "patch" && r.Resource == "nodes" && r.Code < 300
	}) {
		patched[r.Name]++
	}
	for name, n := range patched {
		if n != 1 {
			m.t.Errorf("%s: node %s was patched %d times for its mark", what, name, n)
		}
	}
	if len(patched) != m.machines {
		m.t.Errorf("%s: %d nodes were marked, expected the %d old ones", what, len(patched), m.machines)
	}
	if made := len(m.instances()) - before; made != m.machines {
		m.t.Errorf("%s: %d instances were made for the successors of %d machines", what, made, m.machines)
	}
	m.noTwins()
}

func (m *budgeted) deletion(what string) {
	m.t.Helper()
	m.cost(what, perMachine, 1+2.0/float64(m.machines), func() { // An event of each, and two of the set.
		m.scale(0)
		m.none()
	})
	if n := m.live(); n != 0 {
		m.t.Errorf("%s: %d instances are left", what, n)
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
		counts, err := log.Count(auditlog.Filter{Users: ourUsers})
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
			"auth-extra-groups": controlplane.KubeadmTokens,
			"expiration":        time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
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
