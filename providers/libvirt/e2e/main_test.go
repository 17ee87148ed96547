//go:build e2e

// Package e2e tests the libvirt provider with a real libvirt and QEMU. hack/libvirt installs and starts them on this
// host.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"machinist.dev/machinist/hack/libvirt"
	"machinist.dev/machinist/providers/libvirt/machine/sample"
)

// sharedHypervisor contains the hypervisor of all tests, except those that stop it permanently.
var sharedHypervisor struct {
	once       sync.Once
	hypervisor *libvirt.Hypervisor
	dir        string
	err        error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if sharedHypervisor.hypervisor != nil {
		if err := sharedHypervisor.hypervisor.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop libvirt:", err)
			code = 1
		}
	}
	if sharedHypervisor.dir != "" && code == 0 {
		_ = os.RemoveAll(sharedHypervisor.dir)
	}
	os.Exit(code)
}

func hypervisor(t *testing.T) *libvirt.Hypervisor {
	t.Helper()
	sharedHypervisor.once.Do(func() {
		if sharedHypervisor.dir, sharedHypervisor.err = os.MkdirTemp("", "libvirt-"); sharedHypervisor.err == nil {
			sharedHypervisor.hypervisor, sharedHypervisor.err = start(context.Background(), sharedHypervisor.dir)
		}
	})
	if sharedHypervisor.err != nil {
		t.Fatal(errors.Join(errors.New("libvirt did not start"), sharedHypervisor.err))
	}
	return sharedHypervisor.hypervisor
}

// bootSector contains code that stops the processor (cli, hlt, jmp). The guest runs without using processor time.
var bootSector = append(append([]byte{0xfa, 0xf4, 0xeb, 0xfd}, make([]byte, 506)...), 0x55, 0xaa)

// start starts a hypervisor with an image in its pool.
func start(ctx context.Context, dir string) (*libvirt.Hypervisor, error) {
	h, err := libvirt.Start(ctx, libvirt.Options{Dir: filepath.Join(dir, "h"), Output: os.Stderr})
	if err != nil {
		return nil, err
	}
	image := filepath.Join(dir, "image")
	if err := os.WriteFile(image, append(bootSector, make([]byte, 1<<20-len(bootSector))...), 0o600); err != nil {
		return nil, errors.Join(err, h.Stop())
	}
	if err := h.Import(ctx, sample.Base, image); err != nil {
		return nil, errors.Join(err, h.Stop())
	}
	return h, nil
}
