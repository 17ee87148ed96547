//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/platform/process"
	"machinist.dev/machinist/simcloud"
)

// No alert may fire while the fleet is healthy. Then the test causes every kind of failure of machines, clouds and
// clusters, and the alert for each failure must fire. The metrics come from the real programs.
//
// Rules: alerts-fire-for-their-cause, no-alert-for-a-healthy-fleet.
func TestFleetAlertsFireOnlyForTheirCause(t *testing.T) {
	t.Parallel()
	addresses := map[string]string{stack.Manager: freeAddress(t), stack.Provider: freeAddress(t)}
	args := func(program string, more ...string) []string {
		return slices.Concat([]string{"--metrics-bind-address=" + addresses[program]}, fastChecks, more)
	}
	m := start(t, stack.Options{
		SeparateTarget:             true,
		ManagerArgs:                args(stack.Manager, "--overshoot-tolerance=1", "--overshoot-recovery=1"),
		ProviderArgs:               args(stack.Provider, orphanChecks("--concurrent-machines=4")...),
		ExtraControllerManagerArgs: []string{"--node-monitor-grace-period=20s", "--node-monitor-period=1s"},
	})
	m.removeDelays()
	m.createFleet(4, nil)
	fleet := m.awaitRunning(4)
	m.createHealthCheck(func(c *v1beta1.MachineHealthCheck) {
		c.Spec.Selector.MatchLabels = m.deployment().Spec.Selector.MatchLabels
		c.Spec.MaxUnhealthy = &intstr.IntOrString{Type: intstr.Int, IntVal: 0}
	})
	p := m.startPrometheus(addresses)
	p.wantNoAlerts(len(fleet))
	t.Logf("the fleet is healthy")

	b := &failingFleet{prometheus: p, fleet: fleet}
	b.refuseCreations()
	b.stallMachines()
	b.blockDrains()
	b.leaveOrphans()
	stop := m.flood(m.ownerOf(&fleet[0]))
	p.awaitFiring("MachinistOvershoot")
	stop()
	p.awaitFiring("MachinistProviderThrottled", "MachinistProviderErrors", "MachinistProviderCredentialsRefused",
		"MachinistNoCapacity", "MachinistConfigurationRefused", "MachinistClassNotReady", "MachinistMachinesSkipped",
		"MachinistMachineNotRunning", "MachinistReplicasMissing", "MachinistRolloutStuck",
		"MachinistMachineFailed", "MachinistMachineDeletionStuck", "MachinistDrainBlocked", "MachinistDrainFailing",
		"MachinistOrphansBlocked", "MachinistOrphansNotCollected")
	b.silenceNodes()
	b.delayManyCreations()
	b.loseTarget()
	p.wantRulesEvaluated()
	p.wantPanelData(func(panel string) bool { return !aboutProcesses(panel) })
}

// aboutProcesses reports whether only the test of the process alerts provides data for a panel.
func aboutProcesses(panel string) bool {
	return slices.Contains([]string{"rollout/Machines of a migration", "rollout/Stuck migrations",
		"controllers/Degraded Providers"}, panel)
}

// wantNoAlerts lets the machines run for longer than the longest delay of an alert rule. No alert may have fired by
// then.
func (p *prometheus) wantNoAlerts(running int) {
	p.t.Helper()
	for try := 1; ; try++ {
		p.awaitLeaders(2)
		eventually(p.t, "Prometheus sees the running machines", func() (bool, string) {
			machines := p.query(fmt.Sprintf(`sum(machinist_machines{phase="Running"}) == %d`, running))
			return len(machines) == 1, fmt.Sprint(machines)
		})
		p.checkUntil(p.began.Add(shortened.For+shortened.Range), func() {})
		fired := p.firedAlerts()
		if len(fired) == 0 {
			break
		}
		if try == 5 || p.allScraped() {
			p.t.Fatalf("alerts fired about a healthy fleet: %s", strings.Join(fired, ", "))
		}
		p.t.Logf("%s fired, but scrapes failed: trying again", strings.Join(fired, ", "))
	}
	p.wantRulesEvaluated()
	token := newToken(p.t, p.control, "scraper")
	for name, address := range map[string]string{"the manager": p.addressOf(stack.Manager),
		"the provider": p.addressOf(stack.Provider)} {
		p.lint(name, address, token)
	}
}

func (p *prometheus) addressOf(job string) string {
	p.t.Helper()
	found := p.query(fmt.Sprintf(`up{job=%q}`, job))
	if len(found) != 1 {
		p.t.Fatalf("job %s: got %d scrape targets, want 1", job, len(found))
	}
	return found[0].Metric["instance"]
}

type failingFleet struct {
	*prometheus
	fleet []v1beta1.Machine
}

func (b *failingFleet) createMachine(name string, change ...func(*v1beta1.Machine)) {
	b.t.Helper()
	machine := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.MachineSpec{
		ClassRef: &v1beta1.LocalRef{Name: examples.SmallClass}, Version: b.fleet[0].Spec.Version}}
	for _, f := range change {
		f(machine)
	}
	b.create(machine)
}

func (b *failingFleet) fault(operation, name string, effect simcloud.FaultEffect) {
	b.t.Helper()
	rule := simcloud.FaultRule{Operation: operation, Match: simcloud.FaultMatch{Name: name}, Effect: effect}
	if _, err := b.cloud.AddFault(context.Background(), rule); err != nil {
		b.t.Fatal(err)
	}
}

func (b *failingFleet) refuseCreations() {
	for name, code := range map[string]simcloud.ErrorCode{
		"throttled": simcloud.CodeThrottled, "down": simcloud.CodeUnavailable, "denied": simcloud.CodeUnauthorized,
		"full": simcloud.CodeInsufficientCapacity, "wrong": simcloud.CodeInvalidParameter,
	} {
		b.fault(simcloud.OperationCreateInstance, name+"-*", simcloud.FaultEffect{Error: code})
		for i := range map[string]int{"throttled": 6, "down": 6, "denied": 1, "full": 1, "wrong": 1}[name] {
			b.createMachine(fmt.Sprintf("%s-%d", name, i))
		}
	}
	b.create(&v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Name: "unready"}, Spec: v1beta1.MachineClassSpec{
		Provider: "sim", ProviderSpec: providerSpec(b.t, "small"),
		CredentialsRef: &v1beta1.LocalRef{Name: "missing"}}})
}

// stallMachines creates a machine without a class, a stuck rollout, a failed machine, and a machine whose deletion
// waits for a hook.
func (b *failingFleet) stallMachines() {
	b.createMachine("classless", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "missing" })

	broken := b.deployment().DeepCopy()
	broken.ObjectMeta = metav1.ObjectMeta{Name: "full-workers"}
	pool := map[string]string{"pool": "full"}
	broken.Spec.Selector.MatchLabels, broken.Spec.Template.ObjectMeta.Labels = pool, pool
	broken.Spec.ProgressDeadline = &metav1.Duration{Duration: 5 * time.Second}
	broken.Status = v1beta1.MachineDeploymentStatus{}
	b.create(broken)

	b.createMachine("vanishes")
	b.createMachine("hooked", func(m *v1beta1.Machine) {
		m.Spec.LifecycleHooks.PreDrain = []v1beta1.LifecycleHook{{Name: "example.com/wait", Owner: "nobody"}}
	})
	for _, name := range []string{"vanishes", "hooked"} {
		b.awaitRunningMachine(name)
	}
	b.injectFault(simcloud.FaultVanishes, *b.machine("vanishes"))
	b.delete("hooked")
}

func (b *failingFleet) awaitRunningMachine(name string) *v1beta1.Machine {
	b.t.Helper()
	return b.awaitMachine(name, name+" is running", func(m *v1beta1.Machine) bool {
		return m.Status.Phase == v1beta1.MachineRunning
	})
}

// blockDrains deletes two machines whose drains cannot finish. A PodDisruptionBudget protects the first pod, and the
// target cluster refuses to evict the second pod.
func (b *failingFleet) blockDrains() {
	b.createMachine("budgeted")
	b.createMachine("refused")
	b.protectedPod("web", b.awaitRunningMachine("budgeted").Status.NodeRef.Name)
	b.protectedPod("stubborn", b.awaitRunningMachine("refused").Status.NodeRef.Name)
	b.refuse(b.target, "evictions", "pods/eviction", admissionv1.Create, `request.name.startsWith("stubborn")`)
	b.delete("budgeted")
	b.delete("refused")
}

func (m *machinist) refuse(c client.Client, name, resource string, operation admissionv1.OperationType, match string) {
	m.t.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{operation},
					Rule: admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{resource}}},
			}}},
			Validations: []admissionv1.Validation{{Expression: "!(" + match + ")", Message: "refused by the test"}},
		}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}
	for _, o := range []client.Object{policy, binding} {
		if err := c.Create(context.Background(), o); err != nil {
			m.t.Fatal(err)
		}
	}
}

// leaveOrphans creates an orphan whose deletion fails, and an orphan whose Node is Ready. Then leaveOrphans changes
// the recorded cluster ID, so that the ID of the process no longer matches.
func (b *failingFleet) leaveOrphans() {
	ghost := b.createOrphan(b.clusterID(), namespace+"/ghost")
	if _, err := b.cloud.AddFault(context.Background(), simcloud.FaultRule{Operation: simcloud.OperationDeleteInstance,
		Match: simcloud.FaultMatch{InstanceID: ghost.ID}, Effect: simcloud.FaultEffect{Error: simcloud.CodeConflict}}); err != nil {
		b.t.Fatal(err)
	}
	b.createMachine("lost")
	b.awaitRunningMachine("lost")
	b.loseMachine("lost")
	b.awaitFiring("MachinistOrphansBlocked", "MachinistOrphansNotCollected")
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: stack.SystemNamespace,
		Name: process.IdentityRecord}}
	before := b.changeRecord(record, "another")
	b.awaitFiring("MachinistClusterIDMismatch")
	b.changeRecord(record, before)
}

func (b *failingFleet) changeRecord(record *corev1.ConfigMap, id string) string {
	b.t.Helper()
	if err := b.control.Get(context.Background(), client.ObjectKeyFromObject(record), record); err != nil {
		b.t.Fatal(err)
	}
	before := record.Data[process.IdentityOfAll]
	record.Data[process.IdentityOfAll] = id
	if err := b.control.Update(context.Background(), record); err != nil {
		b.t.Fatal(err)
	}
	return before
}

// silenceNodes stops the heartbeats of the Node of a replacement machine, and then of most Nodes at once.
func (b *failingFleet) silenceNodes() {
	check := &v1beta1.MachineHealthCheck{}
	if err := b.control.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: "workers"},
		check); err != nil {
		b.t.Fatal(err)
	}
	before := check.DeepCopy()
	check.Spec.Remediation.MaxRetries = new(int32(0))
	if err := b.control.Patch(context.Background(), check, client.MergeFrom(before)); err != nil {
		b.t.Fatal(err)
	}
	b.change(b.fleet[0].Name, func(m *v1beta1.Machine) {
		m.Annotations = map[string]string{v1beta1.AnnotationRemediationRetry: "1/" + string(b.fleet[1].UID)}
	})
	b.injectFault(simcloud.FaultSilent, b.fleet[0])
	b.awaitFiring("MachinistHealthCheckHalted", "MachinistRemediationExhausted")
	for _, r := range b.instances() {
		if r.State == simcloud.StateRunning {
			if _, err := b.cloud.AddInstanceFault(context.Background(), r.ID,
				simcloud.InstanceFault{Kind: simcloud.FaultSilent}); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	b.awaitFiring("MachinistMeltdown")
}

func (b *failingFleet) delayManyCreations() {
	b.fault(simcloud.OperationCreateInstance, "slow-*", simcloud.FaultEffect{
		Latency: simcloud.Duration(shortened.Range + 10*time.Second)})
	for i := range 24 {
		b.createMachine(fmt.Sprintf("slow-%d", i))
	}
	b.awaitFiring("MachinistQueueNotDrained")
}

// loseTarget stops the target cluster. loseTarget then starts the cluster again, with an expired token for the
// provider.
func (b *failingFleet) loseTarget() {
	b.must(b.Target.StopAPIServer)
	b.awaitFiring("MachinistClusterUnreachable")
	b.must(func() error { return b.Target.StartAPIServer(context.Background()) })
	const name = "expired"
	config := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {Server: b.Target.Endpoint(),
			CertificateAuthorityData: b.Target.CA()}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: expiredToken}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}
	file := filepath.Join(b.Dir(), stack.Provider+".target.kubeconfig")
	b.must(func() error { return clientcmd.WriteToFile(config, file) })
	b.awaitFiring("MachinistCredentialsRefused", "MachinistCredentialExpiring")
}

// expiredToken is a token with an invalid signature. The token has expired: it was valid for an hour in 2001.
const expiredToken = "e30.eyJpYXQiOjEwMDAwMDAwMDAsImV4cCI6MTAwMDAwMzYwMH0.c2lnbmF0dXJl"
