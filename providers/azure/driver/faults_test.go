package driver_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/fakeazure"
)

func deletion(req provider.CreateRequest) provider.DeleteRequest {
	return provider.DeleteRequest{Machine: req.Machine, Class: req.Class, ClusterID: req.ClusterID}
}

func lookup(req provider.CreateRequest) provider.GetRequest {
	return provider.GetRequest{Machine: req.Machine, Class: req.Class, ClusterID: req.ClusterID}
}

const gallery = "/subscriptions/" + subscription +
	"/resourceGroups/shared/providers/Microsoft.Compute/galleries/images/images/node/versions/1.0.0"

func allParts() []string {
	return []string{
		"virtualMachines/machines/vm", "networkInterfaces/machines/nic-0", "publicIPAddresses/machines/ip-0",
		"disks/machines/os", "disks/machines/data-0", "disks/machines/data-3",
	}
}

func TestThrottlingReturnsRetryAfter(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	req := request("a", class())
	for _, operation := range []string{"PublicIPAddresses_CreateOrUpdate", "NetworkInterfaces_CreateOrUpdate",
		"VirtualMachines_CreateOrUpdate"} {
		end := c.Inject(fakeazure.Fault{Operation: operation, Status: http.StatusTooManyRequests,
			Code: "OperationNotAllowed", Message: "over the quota of calls", RetryAfter: 17})
		before := c.Calls()[operation]
		_, err := c.driver().Create(t.Context(), req)
		if provider.CodeOf(err) != provider.Throttled || provider.RetryAfter(err) != 17*time.Second {
			t.Errorf("%s is throttled: got %v with RetryAfter %s, want Throttled with 17s", operation, err,
				provider.RetryAfter(err))
		}
		if executed := c.Calls()[operation] - before; executed != 0 {
			t.Errorf("%s was executed %d times", operation, executed)
		}
		end()
	}
	in, err := c.driver().Create(t.Context(), req)
	c.must(err)
	c.has(allParts()...)
	end := c.Inject(fakeazure.Fault{Operation: "VirtualMachines_Delete", Status: http.StatusTooManyRequests,
		Code: "TooManyRequests", RetryAfter: 3})
	del := deletion(req)
	del.ProviderID, del.Scope = in.ProviderID, in.Scope
	if _, err := c.driver().Delete(t.Context(), del); provider.RetryAfter(err) != 3*time.Second {
		t.Errorf("throttled deletion: got %v with RetryAfter %s, want 3s", err, provider.RetryAfter(err))
	}
	end()
	c.awaitGone(c.driver(), del)
	c.nothingLeft()
}

// A concurrent deletion of the machine may remove its parts during Create. Then the caller must retry. But a missing
// resource that the class names must be reported as an error of the class.
func TestPartDeletedDuringCreateIsNotErrorOfClass(t *testing.T) {
	missing := func(operation string) fakeazure.Fault {
		return fakeazure.Fault{Operation: operation, Status: http.StatusNotFound, Code: "ResourceNotFound"}
	}
	dangling := func(operation string) fakeazure.Fault {
		return fakeazure.Fault{Operation: operation, Status: http.StatusBadRequest, Code: "InvalidResourceReference"}
	}
	for name, test := range map[string]struct {
		change time.Duration
		faults []fakeazure.Fault
		want   provider.Code
	}{
		"address missing after its creation": {time.Millisecond, []fakeazure.Fault{missing("PublicIPAddresses_Get")},
			provider.Aborted},
		"interface missing after its creation": {time.Millisecond, []fakeazure.Fault{missing("NetworkInterfaces_Get")},
			provider.Aborted},
		"address of an interface missing": {0, []fakeazure.Fault{dangling("NetworkInterfaces_CreateOrUpdate"),
			missing("PublicIPAddresses_Get")}, provider.Aborted},
		"interface of a machine missing": {0, []fakeazure.Fault{dangling("VirtualMachines_CreateOrUpdate"),
			missing("NetworkInterfaces_Get")}, provider.Aborted},
		"another reference of an interface missing": {0, []fakeazure.Fault{dangling("NetworkInterfaces_CreateOrUpdate")},
			provider.FailedPrecondition},
		"another reference of a machine missing": {0, []fakeazure.Fault{dangling("VirtualMachines_CreateOrUpdate")},
			provider.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, func(o *fakeazure.Options) { o.ChangeDuration = test.change })
			for _, f := range test.faults {
				c.Inject(f)
			}
			if _, err := c.driver().Create(t.Context(), request("a", class())); provider.CodeOf(err) != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestDriverDistinguishesQuotaFromCapacity(t *testing.T) {
	t.Parallel()
	c := newCloud(t, func(o *fakeazure.Options) { o.CoreQuota = 4 })
	first, second := request("a", class()), request("b", class("vmSize", "Standard_D4s_v5"))
	_, err := c.driver().Create(t.Context(), first)
	c.must(err)
	_, err = c.driver().Create(t.Context(), second)
	if provider.CodeOf(err) != provider.ResourceExhausted ||
		!strings.Contains(err.Error(), "a quota of the subscription is used up (OperationNotAllowed)") {
		t.Errorf("beyond the quota: got %v, want ResourceExhausted because of the quota", err)
	}
	c.awaitGone(c.driver(), deletion(first))
	restricted := request("c", class("vmSize", "Standard_M128s", "zone", nil))
	_, err = c.driver().Create(t.Context(), restricted)
	if provider.CodeOf(err) != provider.ResourceExhausted ||
		!strings.Contains(err.Error(), "no capacity for this VM size at present (SkuNotAvailable)") {
		t.Errorf("unavailable size: got %v, want ResourceExhausted because of the capacity", err)
	}
	for _, code := range []string{"AllocationFailed", "ZonalAllocationFailed", "OverconstrainedZonalAllocationRequest"} {
		end := c.Inject(fakeazure.Fault{Operation: "VirtualMachines_CreateOrUpdate", Status: http.StatusConflict,
			Code: code})
		_, err = c.driver().Create(t.Context(), second)
		if provider.CodeOf(err) != provider.ResourceExhausted ||
			!strings.Contains(err.Error(), "no capacity for this VM size at present ("+code+")") {
			t.Errorf("%s: got %v, want ResourceExhausted because of the capacity", code, err)
		}
		end()
	}
	// The next attempt reuses the interface and address of the failed attempt.
	_, err = c.driver().Create(t.Context(), second)
	c.must(err)
	c.awaitGone(c.driver(), deletion(second))
	c.awaitGone(c.driver(), deletion(restricted))
	c.nothingLeft()
}

// Azure accepts most machines before it knows whether it has enough capacity.
func TestInstanceFailsWhenAzureLacksCapacityLater(t *testing.T) {
	t.Parallel()
	c := newCloud(t, func(o *fakeazure.Options) { o.BootDuration = 30 * time.Millisecond })
	end := c.Inject(fakeazure.Fault{Operation: "VirtualMachines_CreateOrUpdate", AsyncCode: "AllocationFailed"})
	req := request("a", class())
	in, err := c.driver().Create(t.Context(), req)
	c.must(err)
	end()
	if in.State != provider.StatePending {
		t.Errorf("Create: got state %s, want Pending", in.State)
	}
	get := lookup(req)
	get.ProviderID, get.Scope = in.ProviderID, in.Scope
	c.eventually("the instance is Failed", func() (bool, string) {
		in, err = c.driver().Get(t.Context(), get)
		c.must(err)
		return in.State == provider.StateFailed, string(in.State)
	})
	if !strings.Contains(in.StateMessage, "AllocationFailed") || in.StateCode != provider.ResourceExhausted {
		t.Errorf("got message %q and code %q, want ResourceExhausted with AllocationFailed", in.StateMessage, in.StateCode)
	}
	del := deletion(req)
	del.ProviderID, del.Scope = in.ProviderID, in.Scope
	c.awaitGone(c.driver(), del)
	c.nothingLeft()
}

// Create returns before Azure creates the machine. A later Create or Delete must find the machine.
func TestCreationSucceedsAfterTimeout(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(*cloud, provider.CreateRequest){
		"next Create finds the machine": func(c *cloud, req provider.CreateRequest) {
			in, err := c.driver().Create(c.Context(), req)
			c.must(err)
			if c.CreatedCount() != 1 {
				c.Errorf("got %d machines, want 1", c.CreatedCount())
			}
			c.has(allParts()...)
			del := deletion(req)
			del.ProviderID, del.Scope = in.ProviderID, in.Scope
			c.awaitGone(c.driver(), del)
		},
		"Delete finds the machine by its tags": func(c *cloud, req provider.CreateRequest) { c.awaitGone(c.driver(), deletion(req)) },
		"Delete finds the machine without the class": func(c *cloud, req provider.CreateRequest) {
			del := deletion(req)
			del.Class.Spec = nil
			c.awaitGone(c.driver(), del)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t, nil)
			req := request("a", class())
			// The timeout is long enough for the calls that precede the create call, even on a slow host. The fault
			// creates the virtual machine after Create has returned.
			const timeout = 5 * time.Second
			end := c.Inject(fakeazure.Fault{Operation: "VirtualMachines_CreateOrUpdate", Late: timeout, Times: 1})
			short, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			_, err := c.driver().Create(short, req)
			if provider.CodeOf(err) != provider.DeadlineExceeded {
				t.Fatalf("got %v, want DeadlineExceeded", err)
			}
			end()
			c.eventually("the machine exists", func() (bool, string) {
				_, err := c.driver().Get(t.Context(), lookup(req))
				return err == nil, "Get does not find the machine"
			})
			after(c, req)
			c.nothingLeft()
		})
	}
}

// If the driver crashes after it created the interface, and before it creates the machine, the interface and its
// address remain.
func TestInterfaceLeftByCrash(t *testing.T) {
	t.Parallel()
	left := []string{"networkInterfaces/machines/nic-0", "publicIPAddresses/machines/ip-0"}
	for name, after := range map[string]func(*cloud, provider.CreateRequest){
		"next Create uses the interface": func(c *cloud, req provider.CreateRequest) {
			_, err := c.driver().Create(c.Context(), req)
			c.must(err)
			c.has(allParts()...)
			c.awaitGone(c.driver(), deletion(req))
		},
		"Delete finds it by the machine's UID": func(c *cloud, req provider.CreateRequest) { c.awaitGone(c.driver(), deletion(req)) },
		"Delete finds it without the class": func(c *cloud, req provider.CreateRequest) {
			del := deletion(req)
			del.Class.Spec = nil
			c.awaitGone(c.driver(), del)
		},
		"Delete of another machine keeps the interface": func(c *cloud, req provider.CreateRequest) {
			for _, other := range []provider.CreateRequest{request("b", class()), request("a-b", class())} {
				c.awaitGone(c.driver(), deletion(other))
			}
			elsewhere := deletion(req)
			elsewhere.ClusterID = "cluster-b"
			c.awaitGone(c.driver(), elsewhere)
			c.has(left...)
			c.awaitGone(c.driver(), deletion(req))
		},
	} {
		t.Run(name, func(t *testing.T) {
			// The change takes longer than the interval between two checks. If the driver restarted the deletion at
			// each check, the deletion would never finish.
			c := newCloud(t, func(o *fakeazure.Options) { o.ChangeDuration = 200 * time.Millisecond })
			req := request("a", class())
			end := c.Inject(fakeazure.Fault{Operation: "VirtualMachines_CreateOrUpdate", Status: http.StatusServiceUnavailable,
				Code: "ServiceUnavailable"})
			_, err := c.driver().Create(t.Context(), req)
			if provider.CodeOf(err) != provider.Unavailable {
				t.Fatalf("got %v, want Unavailable", err)
			}
			end()
			c.has(left...)
			after(c, req)
			c.nothingLeft()
		})
	}
}

// Parts remain if a user changed the delete options of a machine.
func TestDeleteRemovesRemainingPartsByName(t *testing.T) {
	t.Parallel()
	for name, scoped := range map[string]bool{"with a scope": true, "without a scope": false} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, nil)
			req := request("a", class())
			in, err := c.driver().Create(t.Context(), req)
			c.must(err)
			c.KeepParts()
			del := deletion(req)
			del.ProviderID = in.ProviderID
			if scoped {
				del.Scope, del.Class.Spec = in.Scope, nil
			}
			result, err := c.driver().Delete(t.Context(), del)
			c.must(err)
			if result.Gone {
				t.Error("Delete reported Gone although the deletion has only begun")
			}
			c.has(allParts()[1:]...)
			c.awaitGone(c.driver(), del)
			c.nothingLeft()
		})
	}
}

func TestCreateErrorsNameField(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		class provider.Class
		code  provider.Code
		field string
	}{
		"missing resource group": {class("resourceGroup", "nowhere"), provider.FailedPrecondition, "resourceGroup"},
		"missing image":          {class("image.marketplace.version", "1.2.3"), provider.FailedPrecondition, "image"},
		"missing gallery image": {class("image",
			map[string]any{"galleryImageID": strings.Replace(gallery, "node", "missing", 1)}),
			provider.FailedPrecondition, "image"},
		"missing subnet": {class("networkInterfaces", []any{map[string]any{"subnetID": subnet + "2"}}),
			provider.FailedPrecondition, "networkInterfaces"},
		"unknown size":   {class("vmSize", "Standard_X"), provider.InvalidArgument, ""},
		"unknown region": {class("location", "moon"), provider.InvalidArgument, "location"},
		"missing plan":   {class("image.marketplace", flatcar()), provider.FailedPrecondition, "image.plan"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, nil)
			req := request("a", tc.class)
			_, err := c.driver().Create(t.Context(), req)
			e, ok := errors.AsType[*provider.Error](err)
			if !ok || e.Code != tc.code || e.Field != tc.field {
				t.Errorf("got %v, want %s about %q", err, tc.code, tc.field)
			}
			c.awaitGone(c.driver(), deletion(req))
			c.nothingLeft()
		})
	}
}

func flatcar() map[string]any {
	return map[string]any{"publisher": "kinvolk", "offer": "flatcar-container-linux", "sku": "stable-gen2",
		"version": "4230.2.1"}
}

func TestDriverAcceptsTermsOnlyIfClassAllows(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	plan := map[string]any{"name": "stable-gen2", "product": "flatcar-container-linux", "publisher": "kinvolk"}
	withAccept := map[string]any{"name": "stable-gen2", "product": "flatcar-container-linux", "publisher": "kinvolk",
		"acceptTerms": true}
	refused := request("a", class("image", map[string]any{"marketplace": flatcar(), "plan": plan}))
	if _, err := c.driver().Create(t.Context(), refused); provider.CodeOf(err) != provider.FailedPrecondition {
		t.Errorf("terms not accepted: got %v, want FailedPrecondition", err)
	}
	if n := c.Calls()["MarketplaceAgreements_Create"]; n != 0 {
		t.Error("the driver accepted terms without acceptTerms")
	}
	accepted := request("b", class("image", map[string]any{"marketplace": flatcar(), "plan": withAccept}))
	_, err := c.driver().Create(t.Context(), accepted)
	c.must(err)
	_, err = c.driver().Create(t.Context(), refused) // An administrator has accepted the terms meanwhile.
	c.must(err)
	if n := c.Calls()["MarketplaceAgreements_Create"]; n != 1 {
		t.Errorf("terms were accepted %d times, want 1", n)
	}
	c.awaitGone(c.driver(), deletion(refused))
	c.awaitGone(c.driver(), deletion(accepted))
	c.nothingLeft()
}

// A resource without tags belongs to Machinist only if it has one of Machinist's names.
func TestDeleteKeepsPartsOfOthers(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	_, remove, err := c.launch(t.Context(), nil)
	c.must(err)
	before := c.Resources()
	req := request("a", class())
	_, err = c.driver().Create(t.Context(), req)
	c.must(err)
	c.KeepParts()
	c.must(remove(t.Context())) // The interface and the disk, which have no tags, stay.
	withoutSpec := req
	withoutSpec.Class.Spec = nil
	for _, del := range []provider.DeleteRequest{deletion(req), deletion(withoutSpec)} {
		c.awaitGone(c.driver(), del)
	}
	if left := c.Resources(); len(left) != len(before)-1 {
		t.Errorf("got the resources %v, want those of %v without the virtual machine", left, before)
	}
}
