// Package backend runs the libvirt provider with libvirt and QEMU on this host, for the demo and tests. The virtual
// machines boot a disk image of hack/guest and fetch their kubelet.
package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/hack/libvirt"
	"machinist.dev/machinist/providers/libvirt/driver"
	"machinist.dev/machinist/providers/libvirt/machine"
	"machinist.dev/machinist/test/link"
)

// Base is the name of the volume with the OS image. The provider copies this volume for each machine.
const Base = "debian-12.qcow2"

// emulatedMiB is enough memory for the guest and a few pods.
const emulatedMiB = 2048

// Libvirt is a stack.Backend with a hypervisor and the libvirt provider.
type Libvirt struct {
	// ExistingHypervisor is an existing hypervisor, which continues to run after Stop. If ExistingHypervisor is nil,
	// Start starts a new hypervisor.
	ExistingHypervisor *libvirt.Hypervisor
	// Output receives one line for each step of Start. If the field is nil, the lines are discarded.
	Output io.Writer

	started  *libvirt.Hypervisor
	kubelets *kubelets
	links    []*link.Link
	// Agent adds an agent to the machines that updates their kubelet in place.
	Agent bool
	// UserData returns the user data template of machines. The machines can download kubeadm from the URL. Below the
	// URL, a directory for each version contains the kubelet. Default: the template of the profile "preinstalled".
	UserData func(url string) ([]byte, error)
	before   map[string]bool
}

// Hypervisor returns the hypervisor in use, or nil before Start.
func (l *Libvirt) Hypervisor() *libvirt.Hypervisor {
	if l.ExistingHypervisor != nil {
		return l.ExistingHypervisor
	}
	return l.started
}

// Driver implements stack.Backend.
func (*Libvirt) Driver() string { return driver.Name }

// Program implements stack.Backend.
func (*Libvirt) Program() string { return "machinist-provider-libvirt" }

// Cloud implements stack.Backend.
func (*Libvirt) Cloud() string { return "" }

// Fleet implements stack.Backend.
func (*Libvirt) Fleet() examples.Set { return examples.Libvirt }

// Args implements stack.Backend.
func (l *Libvirt) Args(string) []string {
	return []string{"--libvirt-socket=" + l.Hypervisor().Socket(), "--libvirt-create-settle=10s"}
}

// Credentials implements stack.Backend.
func (l *Libvirt) Credentials() map[string]string {
	return map[string]string{"uri": l.Hypervisor().URI()}
}

// Shell implements stack.Shell. Machines can fetch the kubelet at the URL.
func (l *Libvirt) Shell() (programs map[string]string, variables []string) {
	return nil, []string{"LIBVIRT_DEFAULT_URI=" + l.Hypervisor().URI(),
		"KUBELET_URL=" + l.kubelets.url + "/<<KUBELET_VERSION>>/kubelet"}
}

// Start implements stack.Backend.
func (l *Libvirt) Start(ctx context.Context, s *stack.Stack) (url string, err error) {
	image, err := imagePath()
	if err != nil {
		return "", err
	}
	if l.ExistingHypervisor == nil {
		l.started, err = libvirt.Start(ctx, libvirt.Options{Dir: filepath.Join(s.Dir(), driver.Name), Output: l.Output})
		if err != nil {
			return "", err
		}
	}
	volumes, err := l.volumes(ctx)
	if err != nil {
		return "", err
	}
	if !volumes[Base] {
		if err := l.Hypervisor().Import(ctx, Base, image); err != nil {
			return "", err
		}
	}
	if l.before, err = l.volumes(ctx); err != nil {
		return "", err
	}
	l.kubelets, err = serveKubelets(l.Hypervisor().BridgeAddress().String())
	return l.Hypervisor().URI(), err
}

// imagePath returns the path of the disk image that hack/guest/build.sh creates.
func imagePath() (string, error) {
	cache, err := controlplane.CacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "guest", "current", "disk.qcow2")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w; hack/guest/build.sh builds the image", err)
	}
	return path, nil
}

// Address implements stack.Exposer.
func (l *Libvirt) Address() net.IP { return net.IP(l.Hypervisor().BridgeAddress().AsSlice()) }

// Expose implements stack.Exposer.
func (l *Libvirt) Expose(server string) (string, error) {
	proxy, err := link.ListenAt(net.JoinHostPort(l.Address().String(), "0"), server)
	if err != nil {
		return "", err
	}
	l.links = append(l.links, proxy)
	return proxy.Address(), nil
}

// APIServer returns the address of the most recently exposed API server, as machines reach it.
func (l *Libvirt) APIServer() string { return l.links[len(l.links)-1].Address() }

// Adapt implements stack.Adapter. Adapt sets user data for the kubelets of this run. Without KVM, QEMU emulates the
// machines.
func (l *Libvirt) Adapt(o client.Object) error {
	switch o := o.(type) {
	case *corev1.Secret:
		if o.Name != examples.Libvirt.UserData() {
			return nil
		}
		template, err := l.userData()
		o.StringData = map[string]string{"userData": string(template)}
		return err
	case *v1beta1.MachineDeployment:
		first := l.Tour().InitialSize
		o.Spec.Replicas = &first
	case *v1beta1.MachineClass:
		var spec machine.Spec
		if err := json.Unmarshal(o.Spec.ProviderSpec.Raw, &spec); err != nil {
			return err
		}
		l.adaptSpec(&spec)
		raw, err := json.Marshal(spec)
		o.Spec.ProviderSpec = &runtime.RawExtension{Raw: raw}
		return err
	}
	return nil
}

func (l *Libvirt) userData() ([]byte, error) {
	if l.UserData != nil {
		return l.UserData(l.kubelets.url)
	}
	return l.kubelets.userData(l.Agent)
}

// adaptSpec makes the specification suitable for this hypervisor and enables the console log.
func (l *Libvirt) adaptSpec(spec *machine.Spec) {
	spec.Volume.Pool, spec.Volume.Base, spec.ConsoleLog = libvirt.PoolName, Base, true
	spec.KubeletAgent = l.Agent
	for i := range spec.Networks {
		spec.Networks[i].Network = libvirt.Network
	}
	if !hasKVM() {
		spec.DomainType, spec.VCPUs, spec.MemoryMiB = machine.DomainQEMU, 2, min(spec.MemoryMiB, emulatedMiB)
	}
}

// Tour implements stack.Guide.
func (*Libvirt) Tour() stack.Tour {
	if hasKVM() {
		return stack.Tour{InitialSize: 2, MaxSize: 3, FinalSize: 1, Patience: 5 * time.Minute}
	}
	return stack.Tour{InitialSize: 1, MaxSize: 2, FinalSize: 1, Patience: 15 * time.Minute}
}

// Stop implements stack.Backend.
func (l *Libvirt) Stop() error {
	var errs []error
	for _, proxy := range l.links {
		errs = append(errs, proxy.Close())
	}
	l.links = nil
	if l.kubelets != nil {
		errs = append(errs, l.kubelets.close())
		l.kubelets = nil
	}
	if l.started != nil {
		errs = append(errs, l.started.Stop())
		l.started = nil
	}
	return errors.Join(errs...)
}

// CountResources implements stack.Backend. The method counts domains and volumes with libvirt's own client,
// independently of the driver.
func (l *Libvirt) CountResources(ctx context.Context) (live, created int, err error) {
	if l.Hypervisor() == nil {
		return 0, 0, errors.New("libvirt was not started")
	}
	left, err := l.Resources(ctx)
	return len(left), l.kubelets.fetchCount(), err
}

// HasKubelet reports whether machines can fetch this version of the kubelet.
func (l *Libvirt) HasKubelet(version string) bool { return l.kubelets.sums[version] != "" }

// Resources returns the domains, and the volumes created since the start.
func (l *Libvirt) Resources(ctx context.Context) ([]string, error) {
	domains, err := l.Hypervisor().Virsh(ctx, "list", "--all", "--name")
	if err != nil {
		return nil, err
	}
	volumes, err := l.volumes(ctx)
	if err != nil {
		return nil, err
	}
	var left []string
	for _, name := range strings.Fields(domains) {
		left = append(left, "domain "+name)
	}
	for name := range volumes {
		if !l.before[name] {
			left = append(left, "volume "+name)
		}
	}
	return left, nil
}

// Consoles returns the end of each guest's serial console log.
func (l *Libvirt) Consoles() string {
	var all strings.Builder
	logs, _ := filepath.Glob(filepath.Join(l.Hypervisor().PoolPath(), "*console*"))
	for _, path := range logs {
		content, err := os.ReadFile(path)
		fmt.Fprintf(&all, "== %s (%v)\n%s\n", filepath.Base(path), err, content[max(0, len(content)-4000):])
	}
	return all.String()
}

func (l *Libvirt) volumes(ctx context.Context) (map[string]bool, error) {
	if _, err := l.Hypervisor().Virsh(ctx, "pool-refresh", libvirt.PoolName); err != nil {
		return nil, err
	}
	out, err := l.Hypervisor().Virsh(ctx, "vol-list", libvirt.PoolName)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 0 {
			names[fields[0]] = true
		}
	}
	return names, nil
}
