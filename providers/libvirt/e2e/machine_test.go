//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/hack/libvirt"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/driver"
	"machinist.dev/machinist/providers/libvirt/machine/sample"
)

const cluster = "e2e"

type testMachine struct {
	*testing.T
	h       *libvirt.Hypervisor
	cloud   *cloud
	driver  *driver.Driver
	class   provider.Class
	machine provider.Machine
	before  map[string]bool
	in      *provider.Instance
}

// newTestMachine returns a machine that is not created yet. At the end of the test, it deletes the machine and checks
// that nothing is left.
func newTestMachine(t *testing.T, changes ...any) *testMachine {
	t.Helper()
	h := hypervisor(t)
	m := &testMachine{T: t, h: h, cloud: &cloud{h: h, dir: t.TempDir()}}
	m.driver = m.newDriver()
	m.class = provider.Class{Spec: sample.Spec(changes...), Credentials: credentials(h, nil)}
	m.machine = provider.Machine{Namespace: "default", Name: "e2e-" + random(),
		UID: types.UID(fmt.Sprintf("%s-0000-4000-8000-0000%s", random(), random()))}
	m.before = m.resources()
	t.Cleanup(func() { m.deleteAndCheck() })
	return m
}

// newDriver returns a driver without state, as after a restart.
func (m *testMachine) newDriver() *driver.Driver {
	m.Helper()
	d, err := driver.New(driver.Options{Wrap: m.cloud.faults.Wrap, Sockets: []string{m.h.Socket()}, PlainTCP: true,
		Endpoints: onLoopback()})
	if err != nil {
		m.Fatal(err)
	}
	return d
}

func (m *testMachine) resources() map[string]bool {
	m.Helper()
	all, err := m.cloud.resources(context.Background())
	if err != nil {
		m.Fatal(err)
	}
	set := map[string]bool{}
	for _, r := range all {
		set[r] = true
	}
	return set
}

// newResources returns the resources created since the start of the test.
func (m *testMachine) newResources() (more []string) {
	m.Helper()
	for r := range m.resources() {
		if !m.before[r] {
			more = append(more, r)
		}
	}
	return more
}

// deleteAndCheck deletes the machine without its provider ID, and checks that no resources are left.
func (m *testMachine) deleteAndCheck() {
	m.Helper()
	m.eventually("the machine is deleted", func() error {
		result, err := m.newDriver().Delete(context.Background(), provider.DeleteRequest{Machine: m.machine, Class: m.class,
			ClusterID: cluster})
		if err == nil && !result.Gone {
			err = fmt.Errorf("Delete does not report Gone")
		}
		return err
	})
	if left := m.newResources(); len(left) > 0 {
		m.Errorf("Delete left %v", left)
	}
}

func (m *testMachine) request() provider.CreateRequest {
	return provider.CreateRequest{
		Machine: m.machine, Class: m.class, ClusterID: cluster, Token: string(m.machine.UID) + "-1",
		UserData: provider.NewSecret([]byte("#cloud-config\n# s3cret\n")),
	}
}

func (m *testMachine) create() *provider.Instance {
	m.Helper()
	in, err := m.driver.Create(m.Context(), m.request())
	if err != nil {
		m.Fatal(err)
	}
	m.in = in
	return in
}

// checkCreateFails checks the code, the field and the words of an error of Create. The error must not contain the user
// data.
func (m *testMachine) checkCreateFails(code provider.Code, field string, words ...string) {
	m.Helper()
	_, err := m.driver.Create(m.Context(), m.request())
	e, ok := asError(err)
	if !ok || e.Code != code || e.Field != field {
		m.Fatalf("Create: got %v, want %s with the field %q", err, code, field)
	}
	for _, word := range words {
		if !strings.Contains(e.Message, word) {
			m.Errorf("the message %q does not contain %q", e.Message, word)
		}
	}
	if strings.Contains(err.Error(), "s3cret") {
		m.Errorf("the error contains the user data: %v", err)
	}
}

func (m *testMachine) get() (*provider.Instance, error) {
	return m.driver.Get(m.Context(), provider.GetRequest{Machine: m.machine, Class: m.class, ClusterID: cluster,
		ProviderID: m.in.ProviderID, Scope: m.in.Scope})
}

func (m *testMachine) awaitState(state provider.InstanceState, words string) {
	m.Helper()
	m.eventually(fmt.Sprintf("the machine is %s", state), func() error {
		in, err := m.get()
		if err == nil && (in.State != state || !strings.Contains(in.StateMessage, words)) {
			err = fmt.Errorf("the state is %s: %q", in.State, in.StateMessage)
		}
		return err
	})
}

func (m *testMachine) uuid() string { return strings.TrimPrefix(m.in.ProviderID, "libvirt:///") }

func (m *testMachine) virsh(args ...string) string {
	m.Helper()
	out, err := m.h.Virsh(context.Background(), args...)
	if err != nil {
		m.Fatal(err)
	}
	return out
}

// timeout is generous, because the host may be busy.
const timeout = 2 * time.Minute

func (m *testMachine) eventually(what string, condition func() error) {
	m.Helper()
	deadline := time.After(timeout)
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			m.Fatalf("after %s, the condition %q is not met: %v", timeout, what, err)
		case <-ticker.C:
		}
	}
}
