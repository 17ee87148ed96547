package driver_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/conformance"
	"machinist.dev/machinist/pkg/provider/endpoints"
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/providers/vsphere/driver"
	"machinist.dev/machinist/providers/vsphere/fakevsphere"
	"machinist.dev/machinist/providers/vsphere/machine/sample"
)

const (
	username = "machinist@vsphere.local"
	password = "a-password-of-the-test"
)

// cloud is a vCenter for one test.
type cloud struct {
	*fakevsphere.VSphere
	url       string
	transport http.RoundTripper
	launched  atomic.Int64
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	v, err := fakevsphere.New(t.Context(), fakevsphere.Options{Username: username, Password: password,
		TaskDelays: map[string]time.Duration{"CloneVm": 100 * time.Millisecond, "PowerOn": 20 * time.Millisecond,
			"PowerOff": 20 * time.Millisecond, "Destroy": 20 * time.Millisecond, "ReconfigVm": 10 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	transport := httpapi.Transport(endpoints.Rules{}.AllowHosts("127.0.0.1"))
	t.Cleanup(transport.CloseIdleConnections)
	return &cloud{VSphere: v, url: server.URL, transport: transport}
}

func (c *cloud) newDriver() (provider.Driver, error) {
	return driver.New(driver.Options{VCenters: map[string]string{sample.VCenter: c.url}, PlainHTTP: true,
		CreateSettle: 3 * time.Second, Transport: c.transport})
}

func credentials(changes ...string) provider.Credentials {
	all := map[string][]byte{"username": []byte(username), "password": []byte(password)}
	for i := 0; i < len(changes); i += 2 {
		all[changes[i]] = []byte(changes[i+1])
	}
	return provider.NewCredentials(all)
}

// spelling are the keys of the tags in the extra configuration.
var spelling = map[string]string{provider.TagCluster: "machinist.cluster",
	provider.TagMachineUID: "machinist.machine-uid", provider.TagMachine: "machinist.machine"}

func (c *cloud) launch(ctx context.Context, tags map[string]string) (string, func(context.Context) error, error) {
	return c.launchNamed(ctx, fmt.Sprintf("another-%d", c.launched.Add(1)), tags)
}

func (c *cloud) launchNamed(ctx context.Context, name string, tags map[string]string) (string,
	func(context.Context) error, error) {
	extra := map[string]string{"machinist.adoptable": "true", "machinist.instance-uuid": fakevsphere.InstanceUUID}
	for key, value := range tags {
		extra[spelling[key]] = value
	}
	uuid, err := c.Launch(ctx, name, extra)
	return "vsphere://" + uuid, func(ctx context.Context) error { return c.Remove(ctx, uuid) }, err
}

func uuidOf(providerID string) string { return strings.TrimPrefix(providerID, "vsphere://") }

// impossible are the faults that a vCenter does not have: one inventory answers all reads, lists have no filters, a
// virtual machine and its disks are created and deleted by one task, and there are no quotas.
var impossible = []conformance.FaultKind{conformance.LateReads, conformance.LateLists, conformance.LateTags,
	conformance.UnsteadyLists, conformance.FiltersIgnored, conformance.StateGoesBack, conformance.PartsRemain,
	conformance.PartsInUse, conformance.PartsReserved, conformance.UntaggedParts, conformance.QuotaFreesLate}

func TestTheDriverConforms(t *testing.T) {
	c := newCloud(t)
	conformance.Run(t, conformance.Config{
		New:       c.newDriver,
		Class:     provider.Class{Spec: sample.Spec(), Credentials: credentials()},
		OtherSpec: sample.Spec("cpus", 4),
		InvalidSpecs: []conformance.InvalidSpec{
			{Name: "no template", Spec: sample.Spec("template", nil), Field: "template"},
			{Name: "the URL of a vCenter", Spec: sample.Spec("vcenter", "https://vcenter.example"), Field: "vcenter",
				HidesLocation: true},
			{Name: "an unknown vCenter", Spec: sample.Spec("vcenter", "other"), Field: "vcenter", HidesLocation: true},
			{Name: "a static address", Spec: sample.Spec("networks", []any{map[string]any{"path": "a", "address": "10.0.0.5"}}),
				Field: "networks[0].address"},
		},
		MalformedCredentials: []provider.Credentials{
			credentials("server", "https://vcenter.example"), credentials("password", ""), credentials("ca.crt", "/etc/ca"),
			provider.NewCredentials(map[string][]byte{"username": []byte("root")}),
		},
		RejectedCredentials: credentials("password", "not-the-password"),
		PublicCredentials:   []string{"username"},
		Version:             "v1.36.3",
		Timeout:             30 * time.Second,
		RequireHooks:        true,
		MinCases:            89,
		ImpossibleFaults:    impossible,
		Cloud: conformance.Cloud{
			Resources: func(context.Context) ([]string, error) { return c.Resources() },
			Launch:    c.launch,
			LaunchNamed: func(ctx context.Context, gone provider.Instance, tags map[string]string) (string,
				func(context.Context) error, error) {
				return c.launchNamed(ctx, gone.NodeName, tags)
			},
			Tags: func(_ context.Context, id string) (map[string]string, error) {
				return maps.Clone(c.Extra(uuidOf(id))), nil
			},
			UserData: func(_ context.Context, id string) ([]byte, error) { return c.UserData(uuidOf(id)), nil },
			Copy: func(ctx context.Context, id string) (string, func(context.Context) error, error) {
				uuid, err := c.Copy(ctx, uuidOf(id), fmt.Sprintf("copy-%d", c.launched.Add(1)))
				return "vsphere://" + uuid, func(ctx context.Context) error { return c.Remove(ctx, uuid) }, err
			},
			IsOn:   func(_ context.Context, id string) (bool, error) { return c.IsOn(uuidOf(id)), nil },
			Inject: c.inject,
		},
	})
}

func (c *cloud) inject(ctx context.Context, f conformance.Fault) (func(), error) {
	clone := []string{"CloneVM_Task"}
	var fault fakevsphere.Fault
	switch f.Kind {
	case conformance.LostCreate:
		fault = fakevsphere.Fault{Methods: clone, LoseAnswer: true}
	case conformance.Unavailable:
		fault = fakevsphere.Fault{Skip: f.Skip, Status: http.StatusServiceUnavailable}
	case conformance.Throttled:
		fault = fakevsphere.Fault{Status: http.StatusTooManyRequests, RetryAfter: int(f.RetryAfter.Seconds())}
	case conformance.Exhausted:
		fault = fakevsphere.Fault{Methods: clone, Name: "InsufficientResourcesFault"}
	case conformance.Unauthenticated:
		fault = fakevsphere.Fault{Skip: f.Skip, Name: "NotAuthenticated"}
	case conformance.PermissionDenied:
		fault = fakevsphere.Fault{Name: "NoPermission"}
	case conformance.Hanging:
		fault = fakevsphere.Fault{Hang: true}
	case conformance.DoneLate:
		fault = fakevsphere.Fault{Changes: true, Skip: f.Skip, Late: f.Duration, Status: http.StatusServiceUnavailable}
	case conformance.OtherCase:
		fault = fakevsphere.Fault{UpperCase: true}
	case conformance.HugeAnswers:
		fault = fakevsphere.Fault{Pad: 256 << 20}
	case conformance.GivesUp:
		fault = fakevsphere.Fault{Methods: clone, CloneStaysOff: "InsufficientResourcesFault"}
	case conformance.NoCapacityToStart:
		fault = fakevsphere.Fault{Methods: []string{"PowerOnVM_Task"}, Name: "InsufficientResourcesFault"}
	case conformance.PowerOffIgnored:
		fault = fakevsphere.Fault{Methods: []string{"ShutdownGuest"}, IgnoreShutdown: true}
	case conformance.PartsGoneFirst:
		return func() {}, c.each(ctx, func(vm *object.VirtualMachine) error { return detachDisks(ctx, vm) })
	case conformance.OperationFails:
		return func() {}, c.each(ctx, func(vm *object.VirtualMachine) error {
			task, err := vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{GuestId: "no-system"})
			if err == nil && task.Wait(ctx) == nil {
				err = errors.New("the operation has not failed")
			}
			return err
		})
	case conformance.SlowEffects:
		return func() {}, nil // Each task takes tens of milliseconds.
	case conformance.PartlyUnreadable:
		fault = fakevsphere.Fault{HideTags: true}
	case conformance.SessionsEnd:
		return func() {}, c.EndSessions(ctx)
	case conformance.GuestClaims:
		return func() {}, c.ClaimAddress(f.Address)
	default:
		return nil, fmt.Errorf("fault %s: %w", f.Kind, errors.ErrUnsupported)
	}
	return c.Inject(fault), nil
}

// each calls a function for each virtual machine of Machinist.
func (c *cloud) each(ctx context.Context, do func(*object.VirtualMachine) error) error {
	for _, uuid := range c.UUIDs("machinist.cluster") {
		vm, err := c.Find(ctx, uuid)
		if err == nil && vm != nil {
			err = do(vm)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func detachDisks(ctx context.Context, vm *object.VirtualMachine) error {
	devices, err := vm.Device(ctx)
	if err != nil {
		return err
	}
	return vm.RemoveDevice(ctx, false, devices.SelectByType((*types.VirtualDisk)(nil))...)
}
