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

const cluster = "cruel"

// one is a machine at a hypervisor, and the driver that makes it.
type one struct {
	*testing.T
	h       *libvirt.Hypervisor
	cloud   *cloud
	driver  *driver.Driver
	class   provider.Class
	machine provider.Machine
	before  map[string]bool
	in      *provider.Instance
}

// newOne is a machine that is not made yet. In the end nothing of it may be left.
func newOne(t *testing.T, changes ...any) *one {
	t.Helper()
	h := hypervisor(t)
	o := &one{T: t, h: h, cloud: &cloud{h: h, dir: t.TempDir()}}
	o.driver = o.newDriver()
	o.class = provider.Class{Spec: sample.Spec(changes...), Credentials: credentials(h, nil)}
	o.machine = provider.Machine{Namespace: "default", Name: "cruel-" + random(),
		UID: types.UID(fmt.Sprintf("%s-0000-4000-8000-0000%s", random(), random()))}
	o.before = o.resources()
	t.Cleanup(func() { o.deleted() })
	return o
}

// newDriver is that of a process that was just started.
func (o *one) newDriver() *driver.Driver {
	o.Helper()
	d, err := driver.New(driver.Options{Wrap: o.cloud.faults.Wrap, Sockets: []string{o.h.Socket()}, PlainTCP: true})
	if err != nil {
		o.Fatal(err)
	}
	return d
}

func (o *one) resources() map[string]bool {
	o.Helper()
	all, err := o.cloud.resources(context.Background())
	if err != nil {
		o.Fatal(err)
	}
	set := map[string]bool{}
	for _, r := range all {
		set[r] = true
	}
	return set
}

// beyond are the resources that were not there before.
func (o *one) beyond() (more []string) {
	o.Helper()
	for r := range o.resources() {
		if !o.before[r] {
			more = append(more, r)
		}
	}
	return more
}

// deleted removes the machine, as a process that knows nothing of it, and holds it to leaving nothing.
func (o *one) deleted() {
	o.Helper()
	o.eventually("the machine is deleted", func() error {
		result, err := o.newDriver().Delete(context.Background(), provider.DeleteRequest{Machine: o.machine, Class: o.class,
			ClusterID: cluster})
		if err == nil && !result.Gone {
			err = fmt.Errorf("it is not gone")
		}
		return err
	})
	if left := o.beyond(); len(left) > 0 {
		o.Errorf("Delete left %v", left)
	}
}

func (o *one) request() provider.CreateRequest {
	return provider.CreateRequest{
		Machine: o.machine, Class: o.class, ClusterID: cluster, Token: string(o.machine.UID) + "-1",
		UserData: provider.NewSecret([]byte("#cloud-config\n# s3cret\n")),
	}
}

// create makes the machine.
func (o *one) create() *provider.Instance {
	o.Helper()
	in, err := o.driver.Create(o.Context(), o.request())
	if err != nil {
		o.Fatal(err)
	}
	o.in = in
	return in
}

// refused holds Create to failing with a code, about a field, with words, and without the user data.
func (o *one) refused(code provider.Code, field string, words ...string) {
	o.Helper()
	_, err := o.driver.Create(o.Context(), o.request())
	e, ok := asError(err)
	if !ok || e.Code != code || e.Field != field {
		o.Fatalf("Create: %v, want %s about %q", err, code, field)
	}
	for _, word := range words {
		if !strings.Contains(e.Message, word) {
			o.Errorf("the message %q lacks %q", e.Message, word)
		}
	}
	if strings.Contains(err.Error(), "s3cret") {
		o.Errorf("the error has the user data: %v", err)
	}
}

func (o *one) get() (*provider.Instance, error) {
	return o.driver.Get(o.Context(), provider.GetRequest{Machine: o.machine, Class: o.class, ClusterID: cluster,
		ProviderID: o.in.ProviderID, Scope: o.in.Scope})
}

// is waits until the machine has a state, with words in its message.
func (o *one) is(state provider.InstanceState, words string) {
	o.Helper()
	o.eventually(fmt.Sprintf("the machine is %s", state), func() error {
		in, err := o.get()
		if err == nil && (in.State != state || !strings.Contains(in.StateMessage, words)) {
			err = fmt.Errorf("it is %s: %q", in.State, in.StateMessage)
		}
		return err
	})
}

func (o *one) uuid() string { return strings.TrimPrefix(o.in.ProviderID, "libvirt:///") }

func (o *one) virsh(args ...string) string {
	o.Helper()
	out, err := o.h.Virsh(context.Background(), args...)
	if err != nil {
		o.Fatal(err)
	}
	return out
}

// patience bounds what must happen soon, on a busy machine too.
const patience = 2 * time.Minute

func (o *one) eventually(what string, condition func() error) {
	o.Helper()
	deadline := time.After(patience)
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			o.Fatalf("not within %s: %s: %v", patience, what, err)
		case <-ticker.C:
		}
	}
}
