//go:build e2e

// Package e2e runs the real binaries against real control planes and the simulated cloud.
package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/e2e/authorized"
	"machinist.dev/machinist/test/env"
)

const namespace = "default"

type machinist struct {
	*stack.Stack
	t       *testing.T
	control client.WithWatch
	target  client.WithWatch
	cloud   *simcloud.Admin
}

func start(t *testing.T, o stack.Options) *machinist {
	t.Helper()
	if o.BinDir == "" {
		o.BinDir = binDir(t)
	}
	o.Dir = filepath.Join(t.TempDir(), "stack")
	o.Output = testWriter{t}
	o.Audit = true
	o.ManagerArgs = slices.Concat(patientLease, o.ManagerArgs)
	o.ProviderArgs = slices.Concat(patientLease, o.ProviderArgs)
	// Some clusters enable this plugin, which requires more permissions for objects that block the deletion of their
	// owners.
	o.ExtraAPIServerArgs = append(o.ExtraAPIServerArgs, "--enable-admission-plugins=OwnerReferencesPermissionEnforcement")
	begun := time.Now()
	s, err := stack.Start(context.Background(), o)
	if err != nil {
		t.Fatalf("start the stack: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			keepLogs(t, s)
		}
		logs := authorized.Clusters{Control: s.Control.AuditLog(), Target: s.Target.AuditLog(), Namespace: o.Namespace}
		if len(o.RemediationKinds) > 0 {
			logs.ManagerRules = remediationRules(t, s)
		}
		if err := s.Stop(); err != nil {
			t.Errorf("stop the stack: %v", err)
		}
		if o.NoTarget {
			logs.Target = ""
		}
		if err := authorized.Record(os.Getenv(grants), logs); err != nil {
			t.Errorf("the requests of the processes do not match their roles in config/rbac:\n%v", err)
		}
	})
	t.Logf("the stack is running after %s", time.Since(begun).Round(time.Millisecond))
	m := &machinist{Stack: s, t: t}
	if m.control, err = s.ControlClient(); err != nil {
		t.Fatal(err)
	}
	if m.target, err = s.TargetClient(); err != nil {
		t.Fatal(err)
	}
	if m.cloud, err = s.CloudAdmin(); err != nil {
		t.Fatal(err)
	}
	return m
}

func binDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// keepLogs logs the end of the process logs and their last errors. keepLogs copies all logs into the folder in
// E2E_LOGS.
func keepLogs(t *testing.T, s *stack.Stack) {
	for _, name := range []string{stack.Manager, stack.Provider} {
		content, err := os.ReadFile(filepath.Join(s.Dir(), name+".log"))
		if err != nil {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(content)), "\n")
		bad := slices.DeleteFunc(slices.Clone(lines), func(l string) bool {
			return strings.HasPrefix(l, "{") && !strings.Contains(l, `"level":"error"`)
		})
		t.Logf("errors of %s:\n%s", name, strings.Join(bad[max(0, len(bad)-10):], "\n"))
		t.Logf("end of the log of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
	if dir := os.Getenv("E2E_LOGS"); dir != "" {
		to := filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "_"))
		if err := os.CopyFS(to, logsOnly{os.DirFS(s.Dir())}); err != nil {
			t.Logf("keep the logs: %v", err)
			return
		}
		t.Logf("all logs are in %s", to)
	}
}

// logsOnly is a file system with only the log files. Sockets, for example, cannot be copied.
type logsOnly struct{ fs.FS }

func (l logsOnly) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(l.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return !e.IsDir() && !strings.HasSuffix(e.Name(), ".log")
	}), err
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func (m *machinist) settings(patch simcloud.SettingsPatch) {
	m.t.Helper()
	if _, err := m.cloud.PatchSettings(context.Background(), patch); err != nil {
		m.t.Fatalf("change the cloud's settings: %v", err)
	}
}

func (m *machinist) removeDelays() {
	m.t.Helper()
	instant := simcloud.Duration(0)
	m.settings(simcloud.SettingsPatch{BootTime: &instant, ShutdownTime: &instant,
		Host: &simcloud.HostSettingsPatch{CloudDelay: &instant}})
}

func (m *machinist) createFleet(replicas int32, change func(client.Object)) {
	m.t.Helper()
	objects, err := examples.Fleet()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, o := range objects {
		o.SetNamespace(namespace)
		switch o := o.(type) {
		case *corev1.Secret:
			if o.Name == examples.CredentialsSecret {
				o.StringData = map[string]string{"token": m.CloudToken()}
			}
		case *v1beta1.MachineDeployment:
			o.Spec.Replicas = &replicas
		}
		if change != nil {
			change(o)
		}
		if err := m.control.Create(context.Background(), o,
			client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			m.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

func (m *machinist) deployment() *v1beta1.MachineDeployment {
	m.t.Helper()
	list := &v1beta1.MachineDeploymentList{}
	if err := m.control.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
		m.t.Fatalf("list deployments: %v", err)
	}
	if len(list.Items) != 1 {
		m.t.Fatalf("got %d deployments, want the one of the example", len(list.Items))
	}
	return &list.Items[0]
}

func (m *machinist) scale(replicas int32) {
	m.t.Helper()
	d := m.deployment()
	before := d.DeepCopy()
	d.Spec.Replicas = &replicas
	if err := m.control.Patch(context.Background(), d, client.MergeFrom(before)); err != nil {
		m.t.Fatalf("scale to %d: %v", replicas, err)
	}
}

func (m *machinist) await(what string, done func([]v1beta1.Machine) bool) []v1beta1.Machine {
	m.t.Helper()
	list := env.Await(m.t, m.control, &v1beta1.MachineList{}, what, func(l *v1beta1.MachineList) (bool, string) {
		return done(l.Items), describe(l.Items)
	}, client.InNamespace(namespace))
	return list.Items
}

func (m *machinist) awaitRunning(n int) []v1beta1.Machine {
	m.t.Helper()
	return m.await(fmt.Sprintf("%d running machines", n), func(machines []v1beta1.Machine) bool {
		return len(machines) == n && !slices.ContainsFunc(machines, func(m v1beta1.Machine) bool {
			return m.Status.Phase != v1beta1.MachineRunning || !m.DeletionTimestamp.IsZero()
		})
	})
}

func (m *machinist) awaitNoMachines() {
	m.t.Helper()
	m.await("no machine", func(machines []v1beta1.Machine) bool { return len(machines) == 0 })
}

func describe(machines []v1beta1.Machine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d machines", len(machines))
	for i := range machines {
		m := &machines[i]
		if i == 15 {
			b.WriteString("\n  …")
			break
		}
		fmt.Fprintf(&b, "\n  %s phase=%s deleted=%v providerID=%s", m.Name, m.Status.Phase, !m.DeletionTimestamp.IsZero(),
			m.Spec.ProviderID)
		for _, c := range m.Status.Conditions {
			if c.Status != metav1.ConditionTrue {
				fmt.Fprintf(&b, " %s=%s(%s: %s)", c.Type, c.Status, c.Reason, c.Message)
			}
		}
	}
	return b.String()
}

func (m *machinist) instances() []simcloud.Record {
	m.t.Helper()
	dump, err := m.cloud.Dump(context.Background())
	if err != nil {
		m.t.Fatalf("list the instances of the cloud: %v", err)
	}
	if dump.InstancesCreated != len(dump.Records) {
		m.t.Fatalf("the cloud created %d instances but remembers only %d: it has forgotten some", dump.InstancesCreated,
			len(dump.Records))
	}
	return dump.Records
}

func (m *machinist) wantNoTwins() {
	m.t.Helper()
	byUID := map[string]string{}
	for _, r := range m.instances() {
		uid := r.Tags[provider.TagMachineUID]
		if uid == "" {
			m.t.Errorf("instance %s was created without the tag %s", r.ID, provider.TagMachineUID)
			continue
		}
		if twin, ok := byUID[uid]; ok {
			m.t.Errorf("machine %s has had two instances: %s and %s", uid, twin, r.ID)
		}
		byUID[uid] = r.ID
	}
}

func (m *machinist) countLive() int {
	m.t.Helper()
	n := 0
	for _, r := range m.instances() {
		if r.State != simcloud.StateTerminated {
			n++
		}
	}
	return n
}
