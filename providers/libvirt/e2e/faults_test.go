//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/hack/libvirt"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/naming"
	"machinist.dev/machinist/providers/libvirt/machine/sample"
)

func asError(err error) (*provider.Error, bool) { return errors.AsType[*provider.Error](err) }

func TestKilledQEMUIsReportedAsStopped(t *testing.T) {
	m := newTestMachine(t)
	m.create()
	if err := m.h.KillGuest(m.uuid()); err != nil {
		t.Fatal(err)
	}
	m.awaitState(provider.StateStopped, "crashed or was killed")
	if in, err := m.driver.Create(t.Context(), m.request()); err != nil || in.ProviderID != m.in.ProviderID ||
		in.State != provider.StateStopped {
		t.Errorf("second Create: got %+v, %v, want the same stopped instance", in, err)
	}
}

func TestDestroyedDomainIsReportedAsStopped(t *testing.T) {
	m := newTestMachine(t)
	m.create()
	m.virsh("destroy", m.uuid())
	m.awaitState(provider.StateStopped, "destroyed on the hypervisor")
}

func TestMachinesStartWithTheHypervisor(t *testing.T) {
	m := newTestMachine(t)
	m.create()
	if info := m.virsh("dominfo", m.uuid()); !strings.Contains(info, "Persistent:     yes") ||
		!strings.Contains(info, "Autostart:      enable") {
		t.Errorf("the domain is not persistent or does not start automatically:\n%s", info)
	}
}

// The driver's connections end with libvirtd. Machines keep running, and the next call finds them.
func TestMachinesSurviveRestartOfLibvirtd(t *testing.T) {
	m := newTestMachine(t)
	m.create()
	pid, err := m.h.GuestPID(m.uuid())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.h.Kill(); err != nil {
		t.Fatal(err)
	}
	m.eventually("calls report that libvirtd is unavailable", func() error {
		if _, err := m.get(); provider.CodeOf(err) != provider.Unavailable {
			return fmt.Errorf("Get: %v", err)
		}
		return nil
	})
	if err := m.h.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if in, err := m.get(); err != nil || in.State != provider.StateRunning {
		t.Errorf("Get: %+v, %v", in, err)
	}
	if now, err := m.h.GuestPID(m.uuid()); now != pid {
		t.Errorf("the process of the guest is %d, want %d, %v", now, pid, err)
	}
}

// libvirtd is killed at several moments of a Create. The second Create must lead to exactly one machine.
func TestCreateIsRepeatedAfterLibvirtdWasKilled(t *testing.T) {
	for _, volumes := range []int{1, 2, 3} {
		t.Run(fmt.Sprintf("after volume %d", volumes), func(t *testing.T) {
			m := newTestMachine(t)
			done := make(chan error, 1)
			go func() {
				_, err := m.driver.Create(context.Background(), m.request())
				done <- err
			}()
			m.eventually("the volumes exist", func() error {
				if n := len(m.newResources()); n < volumes {
					return fmt.Errorf("got %d resources, want %d", n, volumes)
				}
				return nil
			})
			if err := m.h.Kill(); err != nil {
				t.Fatal(err)
			}
			err := <-done
			t.Logf("Create: %v", err)
			if err != nil && !provider.CodeOf(err).Ambiguous() {
				t.Errorf("the code of %v means that nothing was created", err)
			}
			if err := m.h.Launch(t.Context()); err != nil {
				t.Fatal(err)
			}
			// If libvirtd was killed while it wrote a volume, the first call of Create may fail, and the next call
			// succeeds.
			m.eventually("Create succeeds", func() error {
				in, err := m.driver.Create(t.Context(), m.request())
				m.in = in
				return err
			})
			m.awaitState(provider.StateRunning, "")
			if left := m.newResources(); len(left) != 4 {
				t.Errorf("got %v, want a domain and three volumes", left)
			}
		})
	}
}

// A paused libvirtd accepts connections but does not answer calls. Calls of the driver must return when their context
// ends.
func TestCallsEndWhileLibvirtdHangs(t *testing.T) {
	m := newTestMachine(t)
	m.create()
	other := newTestMachine(t)
	if err := m.h.Pause(); err != nil {
		t.Fatal(err)
	}
	resumed := false
	t.Cleanup(func() {
		if !resumed {
			_ = m.h.Resume()
		}
	})
	for name, call := range map[string]func(context.Context) error{
		"Get": func(ctx context.Context) error {
			_, err := m.driver.Get(ctx, provider.GetRequest{Class: m.class, ProviderID: m.in.ProviderID, Scope: m.in.Scope})
			return err
		},
		"Create": func(ctx context.Context) error { _, err := other.driver.Create(ctx, other.request()); return err },
		"List": func(ctx context.Context) error {
			_, err := m.driver.List(ctx, provider.ListRequest{Class: m.class, ClusterID: cluster})
			return err
		},
		"Delete": func(ctx context.Context) error {
			_, err := other.driver.Delete(ctx, provider.DeleteRequest{Machine: other.machine, Class: other.class, ClusterID: cluster})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := call(ctx); provider.CodeOf(err) != provider.DeadlineExceeded {
			t.Errorf("%s: got %v, want DeadlineExceeded", name, err)
		}
		cancel()
	}
	resumed = true
	if err := m.h.Resume(); err != nil {
		t.Fatal(err)
	}
	m.awaitState(provider.StateRunning, "")
}

func TestFullPoolIsResourceExhausted(t *testing.T) {
	m := newTestMachine(t, "seedPool", libvirt.SmallPool)
	fill := func(name, size string) error {
		_, err := m.h.Virsh(t.Context(), "vol-create-as", libvirt.SmallPool, name, size, "--allocation", size)
		return err
	}
	for i, size := range []string{"30M", "1M", "512K", "256K", "128K", "64K", "32K", "16K", "8K", "4K", "4K", "4K", "4K"} {
		name := fmt.Sprintf("filler-%d", i)
		if err := fill(name, size); err == nil {
			t.Cleanup(func() { m.virsh("vol-delete", "--pool", libvirt.SmallPool, name) })
		}
	}
	m.checkCreateFails(provider.ResourceExhausted, "")
	// After the deletion, the small pool must not contain a volume of the failed Create.
	m.deleteAndCheck()
	if volumes := m.virsh("vol-list", libvirt.SmallPool); strings.Contains(volumes, "machinist_") {
		t.Errorf("the full pool still contains volumes of the machine: %s", volumes)
	}
}

func TestMissingObjectsAreReportedWithField(t *testing.T) {
	for field, value := range map[string]any{
		"volume.base": "nothing", "volume.pool": "nothing", "volume.basePool": "nothing", "seedPool": "nothing",
		"disks[0].pool": "nothing", "networks": []any{map[string]any{"network": "nothing"}},
		"kernel.image": nil, "domainType": "kvm",
	} {
		t.Run(field, func(t *testing.T) {
			changes, want := []any{field, value}, field
			switch field {
			case "kernel.image":
				changes = []any{"kernel", map[string]any{"image": "nothing"}}
			case "volume.pool":
				changes = append(changes, "volume.basePool", libvirt.PoolName)
			case "domainType":
				if _, err := os.Stat("/dev/kvm"); err == nil {
					t.Skip("/dev/kvm exists")
				}
				want = "" // libvirt does not report the invalid part of the domain, so the error names no field.
			}
			newTestMachine(t, changes...).checkCreateFails(provider.FailedPrecondition, want)
		})
	}
	t.Run("inactive network", func(t *testing.T) {
		m := newTestMachine(t)
		m.virsh("net-destroy", libvirt.Network)
		t.Cleanup(func() { m.virsh("net-start", libvirt.Network) })
		m.checkCreateFails(provider.FailedPrecondition, "networks")
	})
	t.Run("bridge", func(t *testing.T) {
		m := newTestMachine(t, "networks", []any{map[string]any{"bridge": "nothing0"}})
		m.checkCreateFails(provider.FailedPrecondition, "networks")
	})
	t.Run("size", func(t *testing.T) {
		image := filepath.Join(t.TempDir(), "large")
		if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 2<<30)); err != nil {
			t.Fatal(err)
		}
		h := hypervisor(t)
		if err := h.Import(t.Context(), "large", image); err != nil {
			t.Fatal(err)
		}
		newTestMachine(t, "volume.base", "large").checkCreateFails(provider.FailedPrecondition, "volume.sizeGiB", "1 GiB are less")
	})
}

// libvirt does not know yet about an image that an administrator has copied to the directory of the pool.
func TestNewImageFileIsFound(t *testing.T) {
	h := hypervisor(t)
	if err := os.WriteFile(filepath.Join(h.PoolPath(), "new"), bootSector, 0o600); err != nil {
		t.Fatal(err)
	}
	newTestMachine(t, "volume.base", "new").create()
}

func TestForeignDomainWithSameNameIsKept(t *testing.T) {
	m := newTestMachine(t)
	id, remove, err := m.cloud.createDomain(t.Context(), naming.Instance(cluster, m.machine, m.request().Token), nil)
	if err != nil {
		t.Fatal(err)
	}
	m.checkCreateFails(provider.FailedPrecondition, "", "that does not belong to the machine")
	if state := m.virsh("domstate", strings.TrimPrefix(id, "libvirt:///")); state != "running" {
		t.Errorf("the foreign domain is %s, want running", state)
	}
	if err := remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.create()
}

func TestMachineRunsWithoutItsSeed(t *testing.T) {
	for way, remove := range map[string]func(m *testMachine, name string){
		"through libvirt": func(m *testMachine, name string) { m.virsh("vol-delete", "--pool", libvirt.PoolName, name) },
		"as a file": func(m *testMachine, name string) {
			if err := os.Remove(filepath.Join(m.h.PoolPath(), name)); err != nil {
				m.Fatal(err)
			}
		},
	} {
		t.Run(way, func(t *testing.T) {
			m := newTestMachine(t)
			m.create()
			for _, r := range m.newResources() {
				if name, ok := strings.CutPrefix(r, "volume/"); ok && strings.HasSuffix(name, "_seed") {
					remove(m, name)
				}
			}
			m.awaitState(provider.StateRunning, "")
		})
	}
}

// If the credentials of a class are replaced with those of another hypervisor, the driver must not report machines on
// the original hypervisor as deleted.
func TestCredentialsForOtherHypervisorAreRefused(t *testing.T) {
	m := newTestMachine(t)
	m.create()
	other, err := libvirt.Start(t.Context(), libvirt.Options{Dir: filepath.Join(t.TempDir(), "h"), Output: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Stop(); err != nil {
			t.Error(err)
		}
	})
	class := provider.Class{Spec: m.class.Spec, Credentials: credentials(other, nil)}
	_, err = m.driver.Get(t.Context(), provider.GetRequest{Machine: m.machine, Class: class, ClusterID: cluster,
		ProviderID: m.in.ProviderID, Scope: m.in.Scope})
	if provider.CodeOf(err) != provider.FailedPrecondition || !strings.Contains(err.Error(), "but the credentials name") {
		t.Errorf("Get: %v", err)
	}
	result, err := m.driver.Delete(t.Context(), provider.DeleteRequest{Machine: m.machine, Class: class, ClusterID: cluster,
		ProviderID: m.in.ProviderID, Scope: m.in.Scope})
	if provider.CodeOf(err) != provider.FailedPrecondition || result.Gone {
		t.Errorf("Delete: got %+v, %v, want FailedPrecondition", result, err)
	}
}

func TestEveryTransportReachesMachine(t *testing.T) {
	m := newTestMachine(t, "consoleLog", true, "networks[1]", map[string]any{"user": true}, "zone", "rack-1")
	m.create()
	for _, uri := range []string{m.h.URI(), m.h.TCPURI(), m.h.TLSURI()} {
		if strings.Contains(uri, "tls") {
			m.class.Credentials = credentials(m.h, nil)
		} else {
			m.class.Credentials = provider.NewCredentials(map[string][]byte{"uri": []byte(uri)})
		}
		in, err := m.get()
		if err != nil || in.State != provider.StateRunning || in.Zone != "rack-1" || in.Scope != m.in.Scope {
			t.Errorf("%s: got %+v, %v", uri, in, err)
		}
	}
	if got := len(m.newResources()); got != 5 {
		t.Errorf("the machine with a console log has %d parts, want 5: %v", got, m.newResources())
	}
}

// libvirt stores the UEFI variables of a domain in a file.
func TestUEFIVariablesAreDeletedWithMachine(t *testing.T) {
	if _, err := os.Stat("/usr/share/OVMF/OVMF_CODE_4M.fd"); err != nil {
		t.Skip("Debian's package ovmf is not installed")
	}
	m := newTestMachine(t, "firmware", "uefi")
	m.create()
	variables := filepath.Join(m.h.Dir(), "lib", "qemu", "nvram", m.in.NodeName+"_VARS.fd")
	if _, err := os.Stat(variables); err != nil {
		t.Error(err)
	}
	m.deleteAndCheck()
	if _, err := os.Stat(variables); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the UEFI variables still exist: %v", err)
	}
}

// The simulated hypervisor has its own domains, which belong to no Machine.
func TestDomainsOfSimulatedHypervisorAreNotChanged(t *testing.T) {
	m := newTestMachine(t)
	uri := []byte("test+tcp://" + m.h.TCPAddress() + "/default")
	m.class.Credentials = provider.NewCredentials(map[string][]byte{"uri": uri})
	page, err := m.driver.List(t.Context(), provider.ListRequest{Class: m.class, ClusterID: cluster})
	if err != nil || len(page.Instances)+len(page.Leftovers) > 0 {
		t.Errorf("List: %+v, %v", page, err)
	}
	id := "libvirt:///6695eb01-f6a4-8304-79aa-97f2502e193f"
	in, err := m.driver.Get(t.Context(), provider.GetRequest{Class: m.class, ProviderID: id})
	if err != nil || in.State != provider.StateRunning || in.NodeName != "test" || in.ClusterID != "" {
		t.Errorf("Get: %+v, %v", in, err)
	}
	_, err = m.driver.Delete(t.Context(), provider.DeleteRequest{Machine: m.machine, Class: m.class, ClusterID: cluster,
		ProviderID: id})
	if provider.CodeOf(err) != provider.FailedPrecondition {
		t.Errorf("Delete: %v", err)
	}
	_, err = m.driver.Adopt(t.Context(), provider.AdoptRequest{Machine: m.machine, Class: m.class, ClusterID: cluster,
		ProviderID: id})
	if provider.CodeOf(err) != provider.FailedPrecondition {
		t.Errorf("Adopt: %v", err)
	}
}

// Without a drain, only the zone can change in place.
func TestUpdateOutcomeDependsOnField(t *testing.T) {
	m := newTestMachine(t)
	m.create()
	for name, c := range map[string]struct {
		spec []byte
		want provider.UpdateOutcome
	}{
		"nothing": {m.class.Spec, provider.UpdateDone}, "zone": {sample.Spec("zone", "rack-2"), provider.UpdateDone},
		"memory":  {sample.Spec("memoryMiB", 256), provider.UpdateNeedsDrain},
		"network": {sample.Spec("networks", []any{map[string]any{"user": true}}), provider.UpdateNeedsReplacement},
	} {
		class := provider.Class{Spec: c.spec, Credentials: m.class.Credentials}
		result, err := m.driver.Update(t.Context(), provider.UpdateRequest{Machine: m.machine, Class: class, ClusterID: cluster,
			ProviderID: m.in.ProviderID, Scope: m.in.Scope})
		if err != nil || result.Outcome != c.want {
			t.Errorf("%s: got %+v, %v, want %s", name, result, err, c.want)
		}
		if in, err := m.get(); name == "zone" && (err != nil || in.Zone != "rack-2") {
			t.Errorf("got %+v, %v, want the zone rack-2", in, err)
		}
	}
}
