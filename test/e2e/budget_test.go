//go:build e2e

package e2e

import (
	"context"
	"net/http"
	"slices"
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

// The test counts the API writes for a fleet in the audit log. The test counts all writes of our two processes, but
// not the writes of nodes and Kubernetes. Status writes of sets and deployments are separate, because their number
// depends on the duration.
//
// Rules: four-writes-to-running, outdated-node-taints.
func TestWritesPerMachineStayWithinBudget(t *testing.T) {
	const machines, surge = 100, 10
	t.Setenv("CONTROLPLANE_GOMAXPROCS", "") // No other test runs at the same time.
	m := &budgeted{machinist: start(t, stack.Options{ClusterApproves: true}), machines: machines}
	m.removeDelays()
	var err error
	if m.log, err = auditlog.Open(m.Control.AuditLog()); err != nil {
		t.Fatal(err)
	}
	// All nodes join with the same token, because a token for each machine costs additional writes.
	token := m.sharedToken()
	m.createFleet(0, func(o client.Object) {
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
	m.awaitNoWrites()
	m.measureCreation("creation in a fast cloud")
	m.measureRollout("rollout in a fast cloud", func() {
		m.rollTo(examples.LargeClass)
		m.awaitClasses("all of the new class", map[string]int{examples.LargeClass: m.machines})
	})
	m.measureDeletion("deletion in a fast cloud")
	m.place()
	m.measureCreation("creation with a placement")
	m.measureRollout("rollout with a placement", func() {
		m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"template":{"spec":{"version":"v1.37.0"}}}}`)
		m.await("all of the new version", func(machines []v1beta1.Machine) bool {
			return len(machines) == m.machines && !slices.ContainsFunc(machines, func(m v1beta1.Machine) bool {
				return m.Status.Version != "v1.37.0" || m.Status.Phase != v1beta1.MachineRunning
			})
		})
	})
	m.measureDeletion("deletion with a placement")
	// The instances now stay pending for longer than the interval between two checks.
	boots := simcloud.Duration(1500 * time.Millisecond)
	m.settings(simcloud.SettingsPatch{BootTime: &boots})
	m.measureCreation("creation with instances that boot for 1.5s")
	m.measureDeletion("deletion of these instances")
}

// place distributes the deployment, which has no machines, over three zones.
func (m *budgeted) place() {
	m.t.Helper()
	var domains []string
	for _, zone := range zones {
		m.apply(zoneClass("small-"+zone, "small", zone))
		domains = append(domains, `{"name":"zone-`+zone+`","options":[{"className":"small-`+zone+`"}]}`)
	}
	m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"template":{"spec":{"classRef":null}},"placement":{"domains":[`+
		strings.Join(domains, ",")+`]}}}`)
	m.awaitNoWrites()
}

type budgeted struct {
	*machinist
	machines int
	log      *auditlog.Log
}

var ourUsers = []string{stack.Manager, stack.Provider}

// measure makes a change, waits until the processes stop writing, and compares their writes and events with a budget
// for each machine.
func (m *budgeted) measure(what string, writes, events float64, change func()) auditlog.Counts {
	m.t.Helper()
	if err := m.log.Mark(); err != nil {
		m.t.Fatal(err)
	}
	began := time.Now()
	change()
	m.awaitNoWrites()
	took := time.Since(began)
	counts, err := m.log.Count(auditlog.Filter{Users: ourUsers})
	if err != nil {
		m.t.Fatal(err)
	}
	summaries := counts.ByCall[summaryCall("machinesets")] + counts.ByCall[summaryCall("machinedeployments")]
	writesEach := float64(counts.Writes-summaries) / float64(m.machines)
	eventsEach := float64(counts.Events) / float64(m.machines)
	m.t.Logf("%s: %.2f writes and %.2f events per machine, and %d status writes of sets and deployments in %s\n%s",
		what, writesEach, eventsEach, summaries, took.Round(time.Second), counts)
	conflicts := map[string]int{}
	for _, r := range m.requests(func(r auditlog.Request) bool { return r.Code == http.StatusConflict }) {
		conflicts[strings.TrimSuffix(r.User+" "+r.Verb+" "+r.Resource+"/"+r.Subresource, "/")]++
	}
	m.t.Logf("conflicts: %v", conflicts)
	if writesEach > writes {
		m.t.Errorf("%s: got %.2f writes per machine, want at most %.1f", what, writesEach, writes)
	}
	if limit := summaryLimit(took); summaries > limit {
		m.t.Errorf("%s: got %d status writes of sets and deployments in %s, want at most %d", what, summaries, took, limit)
	}
	if eventsEach > events {
		m.t.Errorf("%s: got %.2f events per machine, want at most %.2f", what, eventsEach, events)
	}
	return counts
}

func summaryCall(resource string) auditlog.Call {
	return auditlog.Call{Verb: "patch", Group: v1beta1.GroupName, Resource: resource, Subresource: "status"}
}

// summaryLimit returns the maximum number of status writes for two sets and a deployment in the given time. If only
// numbers change, a set writes its status at most every two seconds, and a deployment every second. Changes of
// conditions need a few additional writes.
func summaryLimit(took time.Duration) int {
	return 2*int(took.Seconds()) + 12
}

func (m *budgeted) requests(match func(auditlog.Request) bool) []auditlog.Request {
	m.t.Helper()
	requests, err := m.log.Requests(auditlog.Filter{Users: ourUsers, Match: match})
	if err != nil {
		m.t.Fatal(err)
	}
	return requests
}

// perMachine is the write budget of one machine: five writes, and a share of the writes to sets and deployments. The
// budget does not include writes to the status of sets and deployments.
const perMachine = 5 + 0.1

func (m *budgeted) measureCreation(what string) {
	m.t.Helper()
	before := len(m.instances())
	created := m.measure(what, perMachine, 0.1, func() { // The budget for events covers the few events of the set.
		m.scale(int32(m.machines))
		m.awaitRunning(m.machines)
	})
	if made := len(m.instances()) - before; made != m.machines {
		m.t.Errorf("%s: got %d instances for %d machines", what, made, m.machines)
	}
	if n := created.ByCall[auditlog.Call{Verb: "create", Group: v1beta1.GroupName, Resource: "machines"}]; n != m.machines {
		m.t.Errorf("%s: got %d created Machines, want %d", what, n, m.machines)
	}
}

// measureRollout measures a rolling update. For each machine, the budget covers a deletion, a creation, a mark on the
// old Node, and a share of the writes to sets and deployment. The budget does not include writes to the status of
// sets and deployments.
func (m *budgeted) measureRollout(what string, roll func()) {
	m.t.Helper()
	before := len(m.instances())
	patched := map[string]int{}
	for _, old := range m.awaitRunning(m.machines) {
		patched[old.Status.NodeRef.Name] = 0
	}
	m.measure(what, 12.5, 2, roll)
	for _, r := range m.requests(func(r auditlog.Request) bool {
		return r.Verb == "patch" && r.Resource == "nodes" && r.Code < 300
	}) {
		if _, old := patched[r.Name]; old {
			patched[r.Name]++
		}
		if r.User != stack.Provider {
			m.t.Errorf("%s: node %s was patched by %s", what, r.Name, r.User)
		}
	}
	for name, n := range patched {
		if n != 2 {
			m.t.Errorf("%s: the old node %s was patched %d times, want 2: one patch marks it, and one cordons it", what, name, n)
		}
	}
	if made := len(m.instances()) - before; made != m.machines {
		m.t.Errorf("%s: got %d new instances for %d replaced machines", what, made, m.machines)
	}
	m.wantNoTwins()
}

func (m *budgeted) measureDeletion(what string) {
	m.t.Helper()
	// The budget allows one event for each machine, and two events for the set.
	m.measure(what, perMachine, 1+2.0/float64(m.machines), func() {
		m.scale(0)
		m.awaitNoMachines()
	})
	if n := m.countLive(); n != 0 {
		m.t.Errorf("%s: %d instances are left", what, n)
	}
}

func (m *machinist) awaitNoWrites() {
	m.t.Helper()
	log, err := auditlog.Open(m.Control.AuditLog())
	if err != nil {
		m.t.Fatal(err)
	}
	last, since := -1, time.Now()
	eventually(m.t, "the processes write nothing more", func() (bool, string) {
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
		m.t.Fatalf("create a bootstrap token: %v", err)
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
