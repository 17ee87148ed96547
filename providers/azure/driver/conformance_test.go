package driver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/conformance"
	"machinist.dev/machinist/providers/azure/fakeazure"
	"machinist.dev/machinist/providers/azure/machine/sample"
)

func TestTheDriverConforms(t *testing.T) {
	const moment = 20 * time.Millisecond
	for name, change := range map[string]func(*fakeazure.Options){
		"at once": nil,
		"lists lag, slow operations": func(o *fakeazure.Options) {
			o.BootDuration, o.StopDuration, o.ChangeDuration = moment, moment, moment
			o.ListLag, o.Semantics.ClockSkew = 3*moment, 10*time.Minute
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t, change)
			huge := &hugeAnswers{RoundTripper: c.transport}
			c.transport = huge
			minCases := 106
			// The simulated Azure does not implement these faults. The call that creates a resource sets its tags, no
			// list filters by tags, and the driver does not ask guests for addresses.
			unsupported := []conformance.FaultKind{conformance.UntaggedParts, conformance.FiltersIgnored,
				conformance.GuestClaims, conformance.OperationFails, conformance.PartsInUse, conformance.PartsReserved,
				conformance.PowerOffIgnored, conformance.PartlyUnreadable}
			if name != "at once" {
				unsupported = append(unsupported, conformance.HugeAnswers) // One configuration is enough for response sizes.
				minCases--
			}
			conformance.Run(t, conformance.Config{
				New:       func() (provider.Driver, error) { return c.driver(), nil },
				Class:     class(),
				OtherSpec: sample.Spec("vmSize", "Standard_D4s_v5", "resize", "Deallocate", "tags.team", "green"),
				InvalidSpecs: []conformance.InvalidSpec{
					{Name: "no location", Spec: sample.Spec("location", nil), Field: "location"},
					{Name: "no subnet", Spec: sample.Spec("networkInterfaces", []any{}), Field: "networkInterfaces"},
					{Name: "reserved tag", Spec: sample.Spec("tags.machinist-cluster", "x"), Field: "tags"},
				},
				MalformedCredentials: []provider.Credentials{
					credentials("tenantID", "no tenant"), credentials("subscriptionID", "none"), credentials("clientID", ""),
					credentials("clientSecret", "two words"),
					credentials("clientCertificate", "-----BEGIN NOTHING-----"), credentials("password", "x"),
				},
				RejectedCredentials: credentials("clientSecret", "not~the~secret"),
				PublicCredentials: []string{"tenantID", "subscriptionID", "clientID", "azureTenantId", "azure_tenant_id",
					"azure_subscription_id", "azure_client_id", "azure_region", "userData"},
				Version:             "v1.36.3",
				Timeout:             time.Minute,
				RequireHooks:        true,
				MinCases:            minCases,
				ImpossibleFaults:    unsupported,
				Legacies:            legacies(),
				CollectorTags:       collectorTags(),
				ListLacksPowerState: true,
				UserDataLimit:       65535,
				// A copy of a virtual machine by a user cannot be told from a machine that Adopt has tagged.
				MissingHooks: []string{"Cloud.Copy"},
				Cloud: conformance.Cloud{
					IsOn: func(_ context.Context, providerID string) (bool, error) {
						return c.IsOn(strings.TrimPrefix(providerID, "azure://")), nil
					},
					UserData: func(_ context.Context, providerID string) ([]byte, error) {
						return c.CustomData(strings.TrimPrefix(providerID, "azure://")), nil
					},
					LaunchLegacy: c.launchLegacy,
					Tags:         c.tagsAndOptions,
					Resources:    func(context.Context) ([]string, error) { return c.Resources(), nil },
					Launch:       c.launch,
					LaunchNamed: func(ctx context.Context, gone provider.Instance, tags map[string]string) (string,
						func(context.Context) error, error) {
						return c.launchNamed(ctx, path.Base(gone.ProviderID), tags)
					},
					Inject: func(_ context.Context, f conformance.Fault) (func(), error) {
						if f.Kind == conformance.HugeAnswers && name == "at once" {
							huge.on.Store(true)
							return func() { huge.on.Store(false) }, nil
						}
						return c.inject(f)
					},
				},
			})
			c.nothingLeft()
		})
	}
}

// hugeAnswers appends 256 MiB of white space to the responses of the Resource Manager.
type hugeAnswers struct {
	http.RoundTripper
	on atomic.Bool
}

func (h *hugeAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := h.RoundTripper.RoundTrip(r)
	if err != nil || !h.on.Load() || !strings.HasPrefix(r.URL.Path, "/subscriptions/") {
		return response, err
	}
	response.ContentLength = -1
	response.Header.Del("Content-Length")
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(response.Body, io.LimitReader(whiteSpace{}, 256<<20)), response.Body}
	return response, nil
}

type whiteSpace struct{}

func (whiteSpace) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// alter applies begin to the options of the fake Azure. It returns a function that applies end to the options.
func (c *cloud) alter(begin, end func(*fakeazure.Options)) (func(), error) {
	c.Adjust(begin)
	return func() { c.Adjust(end) }, nil
}

func (c *cloud) inject(f conformance.Fault) (func(), error) {
	type options = fakeazure.Options
	switch f.Kind {
	case conformance.LateReads:
		return c.alter(func(o *options) { o.Semantics.ReadsMissNew, o.Semantics.ReadsShowDeleted = f.Duration, f.Duration },
			func(o *options) { o.Semantics.ReadsMissNew, o.Semantics.ReadsShowDeleted = 0, 0 })
	case conformance.LateLists:
		var before time.Duration
		return c.alter(func(o *options) { before, o.ListLag = o.ListLag, max(o.ListLag, f.Duration) }, func(o *options) {
			o.ListLag = before
		})
	case conformance.LateTags:
		return c.alter(func(o *options) { o.Semantics.TagsLate = f.Duration }, func(o *options) { o.Semantics.TagsLate = 0 })
	case conformance.UnsteadyLists:
		return c.alter(func(o *options) { o.Semantics.ListsRepeat, o.Semantics.ListsTurn = true, true },
			func(o *options) { o.Semantics.ListsRepeat, o.Semantics.ListsTurn = false, false })
	case conformance.OtherCase:
		return c.alter(func(o *options) { o.Semantics.IDsUpper = true }, func(o *options) { o.Semantics.IDsUpper = false })
	case conformance.StateGoesBack:
		return c.alter(func(o *options) { o.Semantics.StateFlickers = true }, func(o *options) {
			o.Semantics.StateFlickers = false
		})
	case conformance.SlowEffects:
		var before options
		return c.alter(func(o *options) {
			before = *o
			o.BootDuration, o.StopDuration, o.ChangeDuration = f.Duration, f.Duration, f.Duration
		}, func(o *options) {
			o.BootDuration, o.StopDuration, o.ChangeDuration = before.BootDuration, before.StopDuration, before.ChangeDuration
		})
	case conformance.SessionsEnd:
		c.RevokeTokens()
		return func() {}, nil
	case conformance.PartsRemain:
		c.KeepParts()
		return func() {}, nil
	case conformance.PartsGoneFirst:
		c.DropParts(provider.TagCluster)
		return func() {}, nil
	case conformance.QuotaFreesLate:
		return c.FreezeQuota(f.Duration), nil
	}
	fault := fakeazure.Fault{Operation: "*"}
	switch f.Kind {
	case conformance.LostCreate:
		fault.Operation, fault.LoseAnswer = "VirtualMachines_CreateOrUpdate", true
	case conformance.Unavailable:
		fault.Skip, fault.Status, fault.Code = f.Skip, http.StatusServiceUnavailable, "ServiceUnavailable"
	case conformance.DoneLate:
		fault.Writes, fault.Skip, fault.Late, fault.Status, fault.Code = true, f.Skip, f.Duration, http.StatusGatewayTimeout, "GatewayTimeout"
	case conformance.Throttled:
		fault.Status, fault.Code, fault.RetryAfter = http.StatusTooManyRequests, "TooManyRequests", int(f.RetryAfter.Seconds())
	case conformance.NoCapacityToStart:
		fault.Operation, fault.AsyncCode = "VirtualMachines_Start", "AllocationFailed"
	case conformance.GivesUp:
		fault.Operation, fault.AsyncCode = "VirtualMachines_CreateOrUpdate", "AllocationFailed"
	case conformance.Exhausted:
		fault.Operation, fault.Status, fault.Code = "VirtualMachines_CreateOrUpdate", http.StatusConflict, "AllocationFailed"
	case conformance.Unauthenticated:
		fault.Skip, fault.Status, fault.Code = f.Skip, http.StatusUnauthorized, "InvalidAuthenticationToken"
	case conformance.PermissionDenied:
		fault.Status, fault.Code = http.StatusForbidden, "AuthorizationFailed"
	case conformance.Hanging:
		fault.Hang = true
	default:
		return nil, fmt.Errorf("fault %s: %w", f.Kind, errors.ErrUnsupported)
	}
	return c.Inject(fault), nil
}

// launch creates an adoptable virtual machine without the driver, like a user's script.
func (c *cloud) launch(ctx context.Context, tags map[string]string) (string, func(context.Context) error, error) {
	c.launched++
	all := adoptableTags()
	maps.Copy(all, tags)
	return c.launchNamed(ctx, fmt.Sprintf("untagged-%d", c.launched), all)
}

func (c *cloud) launchNamed(ctx context.Context, name string, tags map[string]string) (string,
	func(context.Context) error, error) {
	return c.launchIn(ctx, "machines", name, tags)
}

func (c *cloud) launchIn(ctx context.Context, resourceGroup, name string, tags map[string]string) (string,
	func(context.Context) error, error) {
	var vm string
	c.eventually("the virtual machine is accepted", func() (bool, string) {
		var err error
		vm, err = c.customer().Launch(ctx, resourceGroup, name, subnet, tags)
		return err == nil, fmt.Sprint(err)
	})
	c.eventually("the machine runs", func() (bool, string) {
		return slices.Contains(c.RunningNames(), name), "the machine does not run"
	})
	return "azure://" + vm, func(ctx context.Context) error {
		return c.call(ctx, http.MethodDelete, vm+"?api-version=2025-04-01", nil)
	}, nil
}

func (c *cloud) customer() fakeazure.Customer {
	return fakeazure.Customer{Client: &http.Client{Transport: c.transport}, URL: c.url, Tenant: tenant,
		Subscription: subscription, Application: application, Secret: secret}
}

func (c *cloud) call(ctx context.Context, method, path string, body any) error {
	return c.customer().Call(ctx, method, path, body, nil)
}

func (c *cloud) read(ctx context.Context, path string, out any) error {
	return c.customer().Call(ctx, http.MethodGet, path, nil, out)
}
