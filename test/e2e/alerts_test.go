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

// A Prometheus watches a fleet. While that is healthy no alert fires. Then all that can befall machines, clouds and
// clusters does, and each alert about it fires, with the real metrics of the real programs.
//
// Rules: alerts-fire-for-their-cause, no-alert-for-a-healthy-fleet.
func TestAlertsAboutTheFleetFireForTheirCauseOnly(t *testing.T) {
	t.Parallel()
	addresses := map[string]string{stack.Manager: freeAddress(t), stack.Provider: freeAddress(t)}
	args := func(program string, more ...string) []string {
		return slices.Concat([]string{"--metrics-bind-address=" + addresses[program]}, watchful, more)
	}
	m := start(t, stack.Options{
		SeparateTarget:             true,
		ManagerArgs:                args(stack.Manager, "--overshoot-tolerance=1", "--overshoot-recovery=1"),
		ProviderArgs:               args(stack.Provider, orphanChecks("--concurrent-machines=4")...),
		ExtraControllerManagerArgs: []string{"--node-monitor-grace-period=20s", "--node-monitor-period=1s"},
	})
	m.quick()
	m.fleet(4, nil)
	fleet := m.running(4)
	m.healthCheck(func(c *v1beta1.MachineHealthCheck) {
		c.Spec.Selector.MatchLabels = m.deployment().Spec.Selector.MatchLabels
		c.Spec.MaxUnhealthy = &intstr.IntOrString{Type: intstr.Int, IntVal: 0}
	})
	p := m.watch(addresses)
	p.quiet(len(fleet))
	t.Logf("the fleet is healthy")

	b := &befallen{prometheus: p, fleet: fleet}
	b.cloudRefuses()
	b.machinesWait()
	b.drainsWait()
	b.orphansRemain()
	stop := m.flood(m.ownerOf(&fleet[0]))
	p.firing("MachinistOvershoot")
	stop()
	p.firing("MachinistProviderThrottled", "MachinistProviderErrors", "MachinistProviderCredentialsRefused",
		"MachinistNoCapacity", "MachinistConfigurationRefused", "MachinistClassNotReady", "MachinistMachinesSkipped",
		"MachinistMachineNotRunning", "MachinistReplicasMissing", "MachinistRolloutStuck",
		"MachinistMachineFailed", "MachinistMachineDeletionStuck", "MachinistDrainBlocked", "MachinistDrainFailing",
		"MachinistOrphansBlocked", "MachinistOrphansNotCollected")
	b.nodesGoSilent()
	b.manyWait()
	b.targetIsLost()
	p.evaluated()
	p.shows(func(panel string) bool { return !aboutProcesses(panel) })
}

// aboutProcesses reports whether a panel is about what only the journey of the processes has.
func aboutProcesses(panel string) bool {
	return slices.Contains([]string{"rollout/Machines of a migration", "rollout/Stuck migrations",
		"controllers/Degraded Providers"}, panel)
}

// quiet returns when Prometheus has seen that many machines run for longer than any of the rules waits, and no alert
// has fired.
func (p *prometheus) quiet(running int) {
	p.t.Helper()
	for try := 1; ; try++ {
		p.seen(2)
		eventually(p.t, "Prometheus sees the running machines", func() (bool, string) {
			machines := p.query(fmt.Sprintf(`sum(machinist_machines{phase="Running"}) == %d`, running))
			return len(machines) == 1, fmt.Sprint(machines)
		})
		p.throughout(p.began.Add(shortened.For+shortened.Range), func() {})
		fired := p.fired()
		if len(fired) == 0 {
			break
		}
		if try == 5 || p.scraped() {
			p.t.Fatalf("of a healthy fleet, alerts fire: %s", strings.Join(fired, ", "))
		}
		p.t.Logf("scrapes failed, so it is observed again; %s fired", strings.Join(fired, ", "))
	}
	p.evaluated()
	token := newToken(p.t, p.control, "scraper")
	for name, address := range map[string]string{"the manager": p.addressOf(stack.Manager),
		"the provider": p.addressOf(stack.Provider)} {
		p.lint(name, address, token)
	}
}

// addressOf returns where a process is scraped.
func (p *prometheus) addressOf(job string) string {
	p.t.Helper()
	found := p.query(fmt.Sprintf(`up{job=%q}`, job))
	if len(found) != 1 {
		p.t.Fatalf("%d targets are scraped as %s", len(found), job)
	}
	return found[0].Metric["instance"]
}

// befallen is a fleet that everything befalls.
type befallen struct {
	*prometheus
	fleet []v1beta1.Machine
}

// byHand makes a machine without an owner.
func (b *befallen) byHand(name string, change ...func(*v1beta1.Machine)) {
	b.t.Helper()
	machine := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.MachineSpec{
		ClassRef: &v1beta1.LocalRef{Name: examples.SmallClass}, Version: b.fleet[0].Spec.Version}}
	for _, f := range change {
		f(machine)
	}
	b.create(machine)
}

// fault makes calls of an operation about instances of that name fail.
func (b *befallen) fault(operation, name string, effect simcloud.FaultEffect) {
	b.t.Helper()
	rule := simcloud.FaultRule{Operation: operation, Match: simcloud.FaultMatch{Name: name}, Effect: effect}
	if _, err := b.cloud.AddFault(context.Background(), rule); err != nil {
		b.t.Fatal(err)
	}
}

// cloudRefuses has the cloud answer to the creation of machines in all ways in which it can refuse.
func (b *befallen) cloudRefuses() {
	for name, code := range map[string]simcloud.ErrorCode{
		"throttled": simcloud.CodeThrottled, "down": simcloud.CodeUnavailable, "denied": simcloud.CodeUnauthorized,
		"full": simcloud.CodeInsufficientCapacity, "wrong": simcloud.CodeInvalidParameter,
	} {
		b.fault(simcloud.OperationCreateInstance, name+"-*", simcloud.FaultEffect{Error: code})
		for i := range map[string]int{"throttled": 6, "down": 6, "denied": 1, "full": 1, "wrong": 1}[name] {
			b.byHand(fmt.Sprintf("%s-%d", name, i))
		}
	}
	b.create(&v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Name: "unready"}, Spec: v1beta1.MachineClassSpec{
		Provider: "sim", ProviderSpec: providerSpec(b.t, "small"),
		CredentialsRef: &v1beta1.LocalRef{Name: "missing"}}})
}

// machinesWait has machines that nobody launches, a rollout that cannot go on, one that fails and one that does not go.
func (b *befallen) machinesWait() {
	b.byHand("classless", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "missing" })

	broken := b.deployment().DeepCopy()
	broken.ObjectMeta = metav1.ObjectMeta{Name: "full-workers"}
	pool := map[string]string{"pool": "full"}
	broken.Spec.Selector.MatchLabels, broken.Spec.Template.ObjectMeta.Labels = pool, pool
	broken.Spec.ProgressDeadline = &metav1.Duration{Duration: 5 * time.Second}
	broken.Status = v1beta1.MachineDeploymentStatus{}
	b.create(broken)

	b.byHand("vanishes")
	b.byHand("hooked", func(m *v1beta1.Machine) {
		m.Spec.LifecycleHooks.PreDrain = []v1beta1.LifecycleHook{{Name: "example.com/wait", Owner: "nobody"}}
	})
	for _, name := range []string{"vanishes", "hooked"} {
		b.awaitRunning(name)
	}
	b.befall(simcloud.FaultVanishes, *b.machine("vanishes"))
	b.delete("hooked")
}

func (b *befallen) awaitRunning(name string) *v1beta1.Machine {
	b.t.Helper()
	return b.awaitMachine(name, name+" is running", func(m *v1beta1.Machine) bool {
		return m.Status.Phase == v1beta1.MachineRunning
	})
}

// drainsWait has a budget that allows no eviction, and a target cluster that refuses evictions.
func (b *befallen) drainsWait() {
	b.byHand("budgeted")
	b.byHand("refused")
	b.protectedPod("web", b.awaitRunning("budgeted").Status.NodeRef.Name)
	b.protectedPod("stubborn", b.awaitRunning("refused").Status.NodeRef.Name)
	b.refuse(b.target, "evictions", "pods/eviction", admissionv1.Create, `request.name.startsWith("stubborn")`)
	b.delete("budgeted")
	b.delete("refused")
}

// refuse has a cluster refuse requests of our processes, by an admission policy.
func (m *machinist) refuse(c client.Client, name, resource string, operation admissionv1.OperationType, which string) {
	m.t.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{operation},
					Rule: admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{resource}}},
			}}},
			Validations: []admissionv1.Validation{{Expression: "!(" + which + ")", Message: "not now"}},
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

// orphansRemain has an instance that cannot be deleted, and one whose Node is Ready, both without a Machine. Then the
// process has another cluster id than before.
func (b *befallen) orphansRemain() {
	ghost := b.abandon(b.clusterID(), namespace+"/ghost")
	if _, err := b.cloud.AddFault(context.Background(), simcloud.FaultRule{Operation: simcloud.OperationDeleteInstance,
		Match: simcloud.FaultMatch{InstanceID: ghost.ID}, Effect: simcloud.FaultEffect{Error: simcloud.CodeConflict}}); err != nil {
		b.t.Fatal(err)
	}
	b.byHand("lost")
	b.awaitRunning("lost")
	b.loseMachine("lost")
	b.firing("MachinistOrphansBlocked", "MachinistOrphansNotCollected")
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: stack.SystemNamespace,
		Name: process.IdentityRecord}}
	before := b.changeRecord(record, "another")
	b.firing("MachinistClusterIDMismatch")
	b.changeRecord(record, before)
}

// changeRecord replaces the recorded cluster id and returns the one before.
func (b *befallen) changeRecord(record *corev1.ConfigMap, id string) string {
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

// nodesGoSilent has one machine break that came after others, and then most nodes at once.
func (b *befallen) nodesGoSilent() {
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
	b.befall(simcloud.FaultSilent, b.fleet[0])
	b.firing("MachinistHealthCheckHalted", "MachinistRemediationExhausted")
	for _, r := range b.instances() {
		if r.State == simcloud.StateRunning {
			if _, err := b.cloud.AddInstanceFault(context.Background(), r.ID,
				simcloud.InstanceFault{Kind: simcloud.FaultSilent}); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	b.firing("MachinistMeltdown")
}

// manyWait has more machines than there are workers wait for a cloud that takes its time.
func (b *befallen) manyWait() {
	b.fault(simcloud.OperationCreateInstance, "slow-*", simcloud.FaultEffect{
		Latency: simcloud.Duration(shortened.Range + 10*time.Second)})
	for i := range 24 {
		b.byHand(fmt.Sprintf("slow-%d", i))
	}
	b.firing("MachinistQueueNotDrained")
}

// targetIsLost has the target cluster not answer, and then not accept who asks: its token has ended.
func (b *befallen) targetIsLost() {
	b.do(b.Target.StopAPIServer)
	b.firing("MachinistClusterUnreachable")
	b.do(func() error { return b.Target.StartAPIServer(context.Background()) })
	const name = "ended"
	config := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {Server: b.Target.Endpoint(),
			CertificateAuthorityData: b.Target.CA()}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: expiredToken}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}
	file := filepath.Join(b.Dir(), stack.Provider+".target.kubeconfig")
	b.do(func() error { return clientcmd.WriteToFile(config, file) })
	b.firing("MachinistCredentialsRefused", "MachinistCredentialExpiring")
}

// expiredToken has the claims iat and exp of an hour in 2001, and no signature that anybody accepts.
const expiredToken = "e30.eyJpYXQiOjEwMDAwMDAwMDAsImV4cCI6MTAwMDAwMzYwMH0.c2lnbmF0dXJl"
