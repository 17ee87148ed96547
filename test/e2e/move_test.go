//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/internal/transfer/backup"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/e2e/authorized"
)

// A fleet moves to another control cluster while its Nodes serve. The command is killed several times, and each run
// continues the move. No instance and no Node may be disturbed.
//
// Rules: move-stops-source-first, move-keeps-instances and move-is-repeatable.
func TestFleetMovesAlthoughCommandIsKilled(t *testing.T) {
	t.Parallel()
	const size = 50
	// The provider checks for orphans so often that a check runs in every stage of the move.
	m := start(t, stack.Options{SeparateTarget: true, ProviderArgs: []string{"--orphan-check-period=1s",
		"--orphan-min-age=1s"}})
	m.removeDelays()
	m.createFleet(size, nil)
	m.awaitRunning(size)
	to := m.startSecond()
	instances, nodes, made := m.launchTimes(), m.servingNodes(), len(m.instances())
	if len(instances) != size || len(nodes) != size {
		t.Fatalf("got %d instances and %d nodes, want %d of each", len(instances), len(nodes), size)
	}
	undisturbed := m.watchNodes()

	contains(t, m.move(to, "--dry-run"), "50 Machines", "Nothing was changed")
	if n := len(to.machines()); n > 0 {
		t.Fatalf("a dry run created %d machines", n)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	count := func(machines []v1beta1.Machine, which func(*v1beta1.Machine) bool) (n int) {
		for i := range machines {
			if which(&machines[i]) {
				n++
			}
		}
		return n
	}
	annotated := func(key string) func(*v1beta1.Machine) bool {
		return func(m *v1beta1.Machine) bool { return m.Annotations[key] != "" }
	}
	killed := 0
	for _, moment := range []struct {
		what    string
		reached func(n int) bool
	}{
		{"machines of the source are paused", func(n int) bool {
			return count(m.machines(), annotated(v1beta1.AnnotationMovingTo)) >= n
		}},
		{"machines exist at the destination", func(n int) bool { return len(to.machines()) >= n }},
		{"machines are handed over", func(n int) bool {
			return count(m.machines(), annotated(v1beta1.AnnotationMovedTo)) >= n
		}},
		{"machines are handed over, and the destination has the deployment", func(int) bool {
			list := &v1beta1.MachineDeploymentList{}
			return to.control.List(t.Context(), list, client.InNamespace(namespace)) == nil && len(list.Items) > 0
		}},
		{"machines are gone from the source", func(n int) bool { return size-len(m.machines()) >= n }},
	} {
		n := 1 + random.IntN(size-1)
		if m.killedMove(to, func() bool { return moment.reached(n) }) {
			killed++
			t.Logf("killed when %d %s", n, moment.what)
		}
		m.wantOneActor(to)
		m.wantSame("after the command was killed", instances, nodes)
	}
	if killed < 3 {
		t.Errorf("the running command was killed %d times, want at least 3", killed)
	}

	t.Log(m.move(to))
	to.awaitRunning(size)
	to.wantSame("after the move", instances, nodes)
	m.wantNoFleet()
	contains(t, m.move(to), "nothing")
	for _, in := range m.instances() {
		if in.State != simcloud.StateTerminated && in.Tags[provider.TagCluster] != to.clusterID() {
			t.Errorf("instance %s: got cluster tag %s, want %s", in.ProviderID, in.Tags[provider.TagCluster], to.clusterID())
		}
	}
	to.kubectl("wait", "md/workers", "--for=condition=Ready", "--timeout=60s")
	undisturbed()

	t.Log("the destination manages the fleet: it scales up and down, and deletes the fleet")
	to.scale(size + 1)
	to.awaitRunning(size + 1)
	if now := len(m.instances()); now != made+1 {
		t.Errorf("the cloud created %d instances, want one more than %d", now, made)
	}
	to.scale(size)
	to.awaitRunning(size)
	if now := len(m.launchTimes()); now != size {
		t.Errorf("got %d instances after scaling down, want %d", now, size)
	}
	to.must(func() error {
		return to.control.DeleteAllOf(t.Context(), &v1beta1.MachineDeployment{}, client.InNamespace(namespace))
	})
	to.awaitNoMachines()
	if now := len(m.launchTimes()); now != 0 {
		t.Errorf("%d instances are left after the fleet was deleted", now)
	}
}

func (m *machinist) startSecond() *machinist {
	m.t.Helper()
	s, err := m.StartSecond(context.Background())
	if err != nil {
		m.t.Fatalf("start a second control cluster: %v", err)
	}
	m.t.Cleanup(func() {
		if m.t.Failed() {
			keepLogs(m.t, s)
		}
		if err := s.Stop(); err != nil {
			m.t.Errorf("stop the second control cluster: %v", err)
		}
		if err := authorized.Record(os.Getenv(grants), authorized.Clusters{Control: s.Control.AuditLog()}); err != nil {
			m.t.Errorf("the requests of the processes do not match their roles in config/rbac:\n%v", err)
		}
	})
	to := &machinist{Stack: s, t: m.t, target: m.target, cloud: m.cloud}
	if to.control, err = s.ControlClient(); err != nil {
		m.t.Fatal(err)
	}
	return to
}

func (m *machinist) moveCommand(to *machinist, args ...string) *exec.Cmd {
	m.t.Helper()
	args = append([]string{"move", "-n", namespace, "--kubeconfig", m.Control.Kubeconfig(), "--to-kubeconfig",
		to.Control.Kubeconfig(), "--timeout=3m"}, args...)
	return exec.Command(filepath.Join(binDir(m.t), "machinist"), args...)
}

func (m *machinist) move(to *machinist, args ...string) string {
	m.t.Helper()
	out, err := m.moveCommand(to, args...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("machinist move %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// killedMove starts the command that moves the fleet, and kills it as soon as moment returns true. killedMove reports
// whether the command was still running.
func (m *machinist) killedMove(to *machinist, moment func() bool) bool {
	m.t.Helper()
	cmd := m.moveCommand(to)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for !moment() {
		select {
		case err := <-ended:
			if err != nil {
				m.t.Fatalf("machinist move: %v\n%s", err, out.String())
			}
			return false
		default:
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		m.t.Logf("kill the command: %v", err)
	}
	return <-ended != nil
}

// wantOneActor fails the test if both control clusters could act on the same Machine. Once the destination has its
// copy, the Machine in the source must be paused. The source must not report orphans.
func (m *machinist) wantOneActor(to *machinist) {
	m.t.Helper()
	there := map[string]bool{}
	for _, copied := range to.machines() {
		there[copied.Name] = true
	}
	for _, machine := range m.machines() {
		if _, paused := machine.Annotations[v1beta1.AnnotationPaused]; there[machine.Name] && !paused {
			m.t.Errorf("machine %s exists in both clusters, but is not paused at the source", machine.Name)
		}
	}
	if orphans := m.command("orphans", "-o", "json"); strings.Contains(orphans, "providerID") {
		m.t.Errorf("the source reports orphans:\n%s", orphans)
	}
}

func (m *machinist) wantNoFleet() {
	m.t.Helper()
	left, err := backup.List(context.Background(), m.control, namespace, true)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, object := range left {
		m.t.Errorf("the source still has %s %s", object.GetKind(), object.GetName())
	}
}

// watchNodes watches the Nodes until the returned function is called. All Nodes must remain, Ready and schedulable.
func (m *machinist) watchNodes() func() {
	m.t.Helper()
	list := &corev1.NodeList{}
	if err := m.target.List(context.Background(), list); err != nil {
		m.t.Fatal(err)
	}
	known := map[string]bool{}
	for i := range list.Items {
		known[list.Items[i].Name] = true
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.t.Cleanup(cancel)
	events, err := m.target.Watch(ctx, &corev1.NodeList{})
	if err != nil {
		m.t.Fatal(err)
	}
	var mu sync.Mutex
	problems := map[string]bool{}
	seen := 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range events.ResultChan() {
			node, ok := event.Object.(*corev1.Node)
			if !ok {
				continue
			}
			mu.Lock()
			seen++
			if event.Type == watch.Deleted || !known[node.Name] {
				problems[fmt.Sprintf("node %s: %s", node.Name, event.Type)] = true
			}
			if node.Spec.Unschedulable || len(node.Spec.Taints) > 0 {
				problems[fmt.Sprintf("node %s: unschedulable %t, taints %v", node.Name, node.Spec.Unschedulable,
					node.Spec.Taints)] = true
			}
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
					problems[fmt.Sprintf("node %s: Ready is %s", node.Name, c.Status)] = true
				}
			}
			mu.Unlock()
		}
	}()
	return func() {
		m.t.Helper()
		events.Stop()
		<-done
		mu.Lock()
		defer mu.Unlock()
		if seen < len(known) {
			m.t.Errorf("got %d events of %d nodes, want at least one of each node", seen, len(known))
		}
		for problem := range problems {
			m.t.Error("during the move: " + problem)
		}
	}
}
