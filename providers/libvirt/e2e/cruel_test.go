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

func TestAKilledQEMUIsAStoppedMachine(t *testing.T) {
	o := newOne(t)
	o.create()
	if err := o.h.KillGuest(o.uuid()); err != nil {
		t.Fatal(err)
	}
	o.is(provider.StateStopped, "crashed or was killed")
	if in, err := o.driver.Create(t.Context(), o.request()); err != nil || in.ProviderID != o.in.ProviderID ||
		in.State != provider.StateStopped {
		t.Errorf("Create again: %+v, %v", in, err)
	}
}

func TestADestroyedDomainSaysSo(t *testing.T) {
	o := newOne(t)
	o.create()
	o.virsh("destroy", o.uuid())
	o.is(provider.StateStopped, "destroyed at the hypervisor")
}

func TestMachinesStartWithTheHypervisor(t *testing.T) {
	o := newOne(t)
	o.create()
	if info := o.virsh("dominfo", o.uuid()); !strings.Contains(info, "Persistent:     yes") ||
		!strings.Contains(info, "Autostart:      enable") {
		t.Errorf("the domain is not persistent, or does not start by itself:\n%s", info)
	}
}

// The driver's connections end with libvirtd. Machines run on, and the next call finds them.
func TestLibvirtdIsStartedAnew(t *testing.T) {
	o := newOne(t)
	o.create()
	pid, err := o.h.GuestPID(o.uuid())
	if err != nil {
		t.Fatal(err)
	}
	if err := o.h.Kill(); err != nil {
		t.Fatal(err)
	}
	o.eventually("calls say that libvirtd is not there", func() error {
		if _, err := o.get(); provider.CodeOf(err) != provider.Unavailable {
			return fmt.Errorf("Get: %v", err)
		}
		return nil
	})
	if err := o.h.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if in, err := o.get(); err != nil || in.State != provider.StateRunning {
		t.Errorf("Get: %+v, %v", in, err)
	}
	if now, err := o.h.GuestPID(o.uuid()); now != pid {
		t.Errorf("the guest's process was %d and is %d, %v", pid, now, err)
	}
}

// libvirtd is killed at several moments of a Create. Create again makes one machine.
func TestLibvirtdIsKilledDuringCreate(t *testing.T) {
	for _, volumes := range []int{1, 2, 3} {
		t.Run(fmt.Sprintf("after volume %d", volumes), func(t *testing.T) {
			o := newOne(t)
			done := make(chan error, 1)
			go func() {
				_, err := o.driver.Create(context.Background(), o.request())
				done <- err
			}()
			o.eventually("volumes are made", func() error {
				if n := len(o.beyond()); n < volumes {
					return fmt.Errorf("there are %d", n)
				}
				return nil
			})
			if err := o.h.Kill(); err != nil {
				t.Fatal(err)
			}
			err := <-done
			t.Logf("Create: %v", err)
			if err != nil && !provider.CodeOf(err).Ambiguous() {
				t.Errorf("the code of %v says that nothing was made", err)
			}
			if err := o.h.Launch(t.Context()); err != nil {
				t.Fatal(err)
			}
			// A file that libvirtd had not finished makes one more attempt.
			o.eventually("Create gets through", func() error {
				in, err := o.driver.Create(t.Context(), o.request())
				o.in = in
				return err
			})
			o.is(provider.StateRunning, "")
			if left := o.beyond(); len(left) != 4 {
				t.Errorf("a machine is a domain and three volumes, and there are %v", left)
			}
		})
	}
}

// A libvirtd that hangs takes connections and answers nothing. No call waits for it longer than its context.
func TestALibvirtdThatHangs(t *testing.T) {
	o := newOne(t)
	o.create()
	other := newOne(t)
	if err := o.h.Pause(); err != nil {
		t.Fatal(err)
	}
	resumed := false
	t.Cleanup(func() {
		if !resumed {
			_ = o.h.Resume()
		}
	})
	for name, call := range map[string]func(context.Context) error{
		"Get": func(ctx context.Context) error {
			_, err := o.driver.Get(ctx, provider.GetRequest{Class: o.class, ProviderID: o.in.ProviderID, Scope: o.in.Scope})
			return err
		},
		"Create": func(ctx context.Context) error { _, err := other.driver.Create(ctx, other.request()); return err },
		"List": func(ctx context.Context) error {
			_, err := o.driver.List(ctx, provider.ListRequest{Class: o.class, ClusterID: cluster})
			return err
		},
		"Delete": func(ctx context.Context) error {
			_, err := other.driver.Delete(ctx, provider.DeleteRequest{Machine: other.machine, Class: other.class, ClusterID: cluster})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := call(ctx); provider.CodeOf(err) != provider.DeadlineExceeded {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	resumed = true
	if err := o.h.Resume(); err != nil {
		t.Fatal(err)
	}
	o.is(provider.StateRunning, "")
}

func TestAFullPool(t *testing.T) {
	o := newOne(t, "seedPool", libvirt.SmallPool)
	fill := func(name, size string) error {
		_, err := o.h.Virsh(t.Context(), "vol-create-as", libvirt.SmallPool, name, size, "--allocation", size)
		return err
	}
	for i, size := range []string{"30M", "1M", "512K", "256K", "128K", "64K", "32K", "16K", "8K", "4K", "4K", "4K", "4K"} {
		name := fmt.Sprintf("filler-%d", i)
		if err := fill(name, size); err == nil {
			t.Cleanup(func() { o.virsh("vol-delete", "--pool", libvirt.SmallPool, name) })
		}
	}
	o.refused(provider.ResourceExhausted, "")
	// The small pool has nothing of the machine either.
	o.deleted()
	if volumes := o.virsh("vol-list", libvirt.SmallPool); strings.Contains(volumes, "machinist_") {
		t.Errorf("the full pool has %s", volumes)
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
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
				changes = append(changes, "volume.basePool", libvirt.Pool)
			case "domainType":
				if _, err := os.Stat("/dev/kvm"); err == nil {
					t.Skip("there is a KVM")
				}
				want = "" // libvirt does not say what of the domain it is.
			}
			newOne(t, changes...).refused(provider.FailedPrecondition, want)
		})
	}
	t.Run("a network that is not active", func(t *testing.T) {
		o := newOne(t)
		o.virsh("net-destroy", libvirt.Network)
		t.Cleanup(func() { o.virsh("net-start", libvirt.Network) })
		o.refused(provider.FailedPrecondition, "networks")
	})
	t.Run("bridge", func(t *testing.T) {
		newOne(t, "networks", []any{map[string]any{"bridge": "nothing0"}}).refused(provider.FailedPrecondition, "networks")
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
		newOne(t, "volume.base", "large").refused(provider.FailedPrecondition, "volume.sizeGiB", "1 GiB are less")
	})
}

// An image that somebody has just copied into the folder of the pool is found although libvirt does not know it yet.
func TestAnImageThatLibvirtDoesNotKnowYet(t *testing.T) {
	h := hypervisor(t)
	if err := os.WriteFile(filepath.Join(h.PoolPath(), "new"), halting, 0o600); err != nil {
		t.Fatal(err)
	}
	newOne(t, "volume.base", "new").create()
}

func TestAForeignDomainHasTheName(t *testing.T) {
	o := newOne(t)
	id, remove, err := o.cloud.launch(t.Context(), naming.Instance(cluster, o.machine, o.request().Token), nil)
	if err != nil {
		t.Fatal(err)
	}
	o.refused(provider.FailedPrecondition, "", "that is not the machine's")
	if state := o.virsh("domstate", strings.TrimPrefix(id, "libvirt:///")); state != "running" {
		t.Errorf("the domain is %s", state)
	}
	if err := remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.create()
}

func TestTheSeedIsRemovedBehindOurBack(t *testing.T) {
	for how, remove := range map[string]func(o *one, name string){
		"by libvirt": func(o *one, name string) { o.virsh("vol-delete", "--pool", libvirt.Pool, name) },
		"by hand": func(o *one, name string) {
			if err := os.Remove(filepath.Join(o.h.PoolPath(), name)); err != nil {
				o.Fatal(err)
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			o := newOne(t)
			o.create()
			for _, r := range o.beyond() {
				if name, ok := strings.CutPrefix(r, "volume/"); ok && strings.HasSuffix(name, "_seed") {
					remove(o, name)
				}
			}
			o.is(provider.StateRunning, "")
		})
	}
}

// Credentials that come to name another hypervisor do not make machines count as gone.
func TestTheCredentialsNameAnotherHypervisor(t *testing.T) {
	o := newOne(t)
	o.create()
	other, err := libvirt.Start(t.Context(), libvirt.Options{Dir: filepath.Join(t.TempDir(), "h"), Output: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Stop(); err != nil {
			t.Error(err)
		}
	})
	class := provider.Class{Spec: o.class.Spec, Credentials: credentials(other, nil)}
	_, err = o.driver.Get(t.Context(), provider.GetRequest{Machine: o.machine, Class: class, ClusterID: cluster,
		ProviderID: o.in.ProviderID, Scope: o.in.Scope})
	if provider.CodeOf(err) != provider.FailedPrecondition || !strings.Contains(err.Error(), "the credentials name") {
		t.Errorf("Get: %v", err)
	}
	result, err := o.driver.Delete(t.Context(), provider.DeleteRequest{Machine: o.machine, Class: class, ClusterID: cluster,
		ProviderID: o.in.ProviderID, Scope: o.in.Scope})
	if provider.CodeOf(err) != provider.FailedPrecondition || result.Gone {
		t.Errorf("Delete: %+v, %v", result, err)
	}
}

func TestEveryTransport(t *testing.T) {
	o := newOne(t, "consoleLog", true, "networks[1]", map[string]any{"user": true}, "zone", "rack-1")
	o.create()
	for _, uri := range []string{o.h.URI(), o.h.TCPURI(), o.h.TLSURI()} {
		if strings.Contains(uri, "tls") {
			o.class.Credentials = credentials(o.h, nil)
		} else {
			o.class.Credentials = provider.NewCredentials(map[string][]byte{"uri": []byte(uri)})
		}
		in, err := o.get()
		if err != nil || in.State != provider.StateRunning || in.Zone != "rack-1" || in.Scope != o.in.Scope {
			t.Errorf("%s: %+v, %v", uri, in, err)
		}
	}
	if got := len(o.beyond()); got != 5 {
		t.Errorf("with a log of the console the machine has %d parts: %v", got, o.beyond())
	}
}

// A domain with UEFI has a file with its variables, which goes with it.
func TestUEFIVariablesGoWithTheMachine(t *testing.T) {
	if _, err := os.Stat("/usr/share/OVMF/OVMF_CODE_4M.fd"); err != nil {
		t.Skip("Debian's package ovmf is not installed")
	}
	o := newOne(t, "firmware", "uefi")
	o.create()
	variables := filepath.Join(o.h.Dir(), "lib", "qemu", "nvram", o.in.NodeName+"_VARS.fd")
	if _, err := os.Stat(variables); err != nil {
		t.Error(err)
	}
	o.deleted()
	if _, err := os.Stat(variables); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the variables are left: %v", err)
	}
}

// The hypervisor that libvirt simulates has domains of its own, which belong to nobody.
func TestTheSimulatedHypervisor(t *testing.T) {
	o := newOne(t)
	uri := []byte("test+tcp://" + o.h.TCPAddress() + "/default")
	o.class.Credentials = provider.NewCredentials(map[string][]byte{"uri": uri})
	page, err := o.driver.List(t.Context(), provider.ListRequest{Class: o.class, ClusterID: cluster})
	if err != nil || len(page.Instances)+len(page.Leftovers) > 0 {
		t.Errorf("List: %+v, %v", page, err)
	}
	id := "libvirt:///6695eb01-f6a4-8304-79aa-97f2502e193f"
	in, err := o.driver.Get(t.Context(), provider.GetRequest{Class: o.class, ProviderID: id})
	if err != nil || in.State != provider.StateRunning || in.NodeName != "test" || in.ClusterID != "" {
		t.Errorf("Get: %+v, %v", in, err)
	}
	_, err = o.driver.Delete(t.Context(), provider.DeleteRequest{Machine: o.machine, Class: o.class, ClusterID: cluster,
		ProviderID: id})
	if provider.CodeOf(err) != provider.FailedPrecondition {
		t.Errorf("Delete: %v", err)
	}
	_, err = o.driver.Adopt(t.Context(), provider.AdoptRequest{Machine: o.machine, Class: o.class, ClusterID: cluster,
		ProviderID: id})
	if provider.CodeOf(err) != provider.FailedPrecondition {
		t.Errorf("Adopt: %v", err)
	}
}

// The label changes in place; all else is another machine.
func TestUpdates(t *testing.T) {
	o := newOne(t)
	o.create()
	for name, c := range map[string]struct {
		spec []byte
		want provider.UpdateOutcome
	}{
		"nothing": {o.class.Spec, provider.UpdateDone}, "zone": {sample.Spec("zone", "rack-2"), provider.UpdateDone},
		"memory":  {sample.Spec("memoryMiB", 256), provider.UpdateNeedsDrain},
		"network": {sample.Spec("networks", []any{map[string]any{"user": true}}), provider.UpdateNeedsReplacement},
	} {
		class := provider.Class{Spec: c.spec, Credentials: o.class.Credentials}
		result, err := o.driver.Update(t.Context(), provider.UpdateRequest{Machine: o.machine, Class: class, ClusterID: cluster,
			ProviderID: o.in.ProviderID, Scope: o.in.Scope})
		if err != nil || result.Outcome != c.want {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
		if in, err := o.get(); name == "zone" && (err != nil || in.Zone != "rack-2") {
			t.Errorf("the zone is %+v, %v", in, err)
		}
	}
}
