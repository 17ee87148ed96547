package driver_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/fakeazure"
)

// lag is the duration of all simulated delays. settle is the CreateSettle of the tested driver, and must be much longer
// than lag.
const (
	lag    = 200 * time.Millisecond
	settle = 800 * time.Millisecond
)

type behavior struct {
	fakeazure.Semantics
	listLag time.Duration
	quota   int
	faults  []fakeazure.Fault
	// missNew is true if Get may return NotFound for a new machine.
	missNew bool
}

func behaviors() map[string]behavior {
	create := "VirtualMachines_CreateOrUpdate"
	return map[string]behavior{
		"reads do not find new resources": {Semantics: fakeazure.Semantics{ReadsMissNew: lag}, missNew: true},
		"reads find deleted resources":    {Semantics: fakeazure.Semantics{ReadsShowDeleted: lag}},
		"tags appear late":                {Semantics: fakeazure.Semantics{TagsLate: lag}},
		"states change back":              {Semantics: fakeazure.Semantics{StateReverts: lag}},
		"lists lag":                       {listLag: lag},
		"lists lack a page":               {Semantics: fakeazure.Semantics{ListsMissPage: true}},
		"lists repeat and reverse":        {Semantics: fakeazure.Semantics{ListsRepeat: true, ListsReverse: true}},
		"lists in upper case":             {Semantics: fakeazure.Semantics{ListsUpper: true}},
		"quota is released late":          {Semantics: fakeazure.Semantics{QuotaLag: lag}, quota: 4},
		"tokens expire early":             {Semantics: fakeazure.Semantics{TokenLife: time.Second}},
		"clock ahead":                     {Semantics: fakeazure.Semantics{ClockSkew: 5 * time.Minute}},
		"clock behind":                    {Semantics: fakeazure.Semantics{ClockSkew: -5 * time.Minute}},
		"answers are lost": {faults: []fakeazure.Fault{
			{Operation: create, LoseAnswer: true, Times: 1}, {Operation: "NetworkInterfaces_CreateOrUpdate",
				LoseAnswer: true, Times: 1},
			{Operation: "VirtualMachines_Delete", LoseAnswer: true, Times: 1},
		}},
		"requests take effect after an error": {faults: []fakeazure.Fault{
			{Operation: create, Status: http.StatusGatewayTimeout, Code: "GatewayTimeout", Late: lag, Times: 1},
			{Operation: "PublicIPAddresses_CreateOrUpdate", Status: http.StatusInternalServerError, Code: "InternalServerError",
				Late: lag, Times: 1},
		}},
		"throttling without Retry-After": {faults: []fakeazure.Fault{{Operation: "*", Status: http.StatusTooManyRequests,
			Code: "TooManyRequests", Skip: 1, Times: 3}}},
		"throttling with Retry-After": {faults: []fakeazure.Fault{{Operation: "*", Status: http.StatusTooManyRequests,
			Code: "TooManyRequests", RetryAfter: 1, Skip: 3, Times: 3}}},
		"many at once": {
			Semantics: fakeazure.Semantics{
				ReadsMissNew: lag, ReadsShowDeleted: lag, TagsLate: 2 * lag, StateReverts: lag, ListsRepeat: true,
				ListsReverse: true,
				ListsUpper:   true, ClockSkew: time.Minute,
			},
			listLag: lag, missNew: true,
			faults: []fakeazure.Fault{{Operation: create, LoseAnswer: true, Times: 1}},
		},
	}
}

// open returns a new fake Azure with this behavior, in which a virtual machine of another owner exists.
func (with behavior) open(t *testing.T) *cloud {
	t.Helper()
	c := newCloud(t, func(o *fakeazure.Options) {
		o.BootDuration, o.StopDuration, o.ChangeDuration = 50*time.Millisecond, 50*time.Millisecond, 10*time.Millisecond
		o.ListLag, o.Semantics, o.CoreQuota = with.listLag, with.Semantics, with.quota
	})
	_, _, err := c.launch(t.Context(), map[string]string{"owner": "other"})
	c.must(err)
	for _, f := range with.faults {
		c.Inject(f)
	}
	return c
}

// mayRetry reports whether Machinist automatically retries soon after the error.
func mayRetry(err error) bool {
	return slices.Contains([]provider.Code{
		provider.Throttled, provider.Unavailable, provider.DeadlineExceeded, provider.Aborted, provider.AlreadyExists,
		provider.ResourceExhausted,
		provider.Unauthenticated, provider.Internal,
	}, provider.CodeOf(err))
}

func (c *cloud) createUntilDone(d provider.Driver, req provider.CreateRequest) *provider.Instance {
	c.Helper()
	var in *provider.Instance
	c.eventually("Create returns an instance", func() (bool, string) {
		var err error
		in, err = d.Create(c.Context(), req)
		if err != nil && !mayRetry(err) {
			c.Fatal(err)
		}
		return err == nil, fmt.Sprint(err)
	})
	return in
}

func (c *cloud) deleteUntilGone(d provider.Driver, req provider.DeleteRequest) {
	c.Helper()
	c.eventually("Delete reports Gone", func() (bool, string) {
		result, err := d.Delete(c.Context(), req)
		if err != nil && !mayRetry(err) {
			c.Fatal(err)
		}
		return err == nil && result.Gone, fmt.Sprint(err)
	})
}

func forAllBehaviors(t *testing.T, test func(*testing.T, behavior)) {
	t.Helper()
	for name, with := range behaviors() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, with)
		})
	}
}

// Create must create exactly one virtual machine, and Get must find it until it runs. After the deletion of the
// Machine, Azure must contain the same resources as before its creation.
func TestMachineLifecycleUnderAllBehaviors(t *testing.T) {
	forAllBehaviors(t, func(t *testing.T, with behavior) {
		c := with.open(t)
		before := c.Resources()
		for n, name := range []string{"a", "b"} {
			d, req := c.driver(), request(name, class())
			in := c.createUntilDone(d, req)
			get := lookup(req)
			get.ProviderID, get.Scope = in.ProviderID, in.Scope
			c.eventually("the machine runs", func() (bool, string) {
				now, err := d.Get(t.Context(), get)
				switch {
				case with.missNew && provider.IsNotFound(err), err != nil && mayRetry(err):
					return false, err.Error()
				case err != nil:
					t.Fatal(err)
				case now.ProviderID != in.ProviderID:
					t.Fatalf("the provider ID changed from %s to %s", in.ProviderID, now.ProviderID)
				}
				return now.State == provider.StateRunning && now.OwnedBy(cluster, req.Machine) == nil, string(now.State)
			})
			if again := c.createUntilDone(d, req); again.ProviderID != in.ProviderID {
				t.Errorf("second Create: got %s, want %s", again.ProviderID, in.ProviderID)
			}
			// A request of Create that takes effect after the deletion leaves a part that only List finds.
			c.eventually("all requests have taken effect", func() (bool, string) {
				late := c.LateCount()
				return late == 0, fmt.Sprintf("%d have not", late)
			})
			del := deletion(req)
			del.ProviderID, del.Scope = in.ProviderID, in.Scope
			c.deleteUntilGone(d, del)
			if left := c.Resources(); !slices.Equal(left, before) {
				t.Errorf("got the resources %v after the deletion, want %v", left, before)
			}
			if created := c.CreatedCount(); created != n+2 { // The other owner's machine counts, too.
				t.Errorf("got %d virtual machines in total, want %d", created, n+2)
			}
		}
	})
}

// If Create failed, Delete finds the instance by its tags. If Delete returns Gone before CreateSettle has passed, the
// instance may still appear. A later call of Delete must then delete it.
func TestDeleteRightAfterCreate(t *testing.T) {
	forAllBehaviors(t, func(t *testing.T, with behavior) {
		c := with.open(t)
		before := c.Resources()
		d, req := c.driver(), request("a", class())
		in, err := d.Create(t.Context(), req)
		if err != nil && !mayRetry(err) {
			t.Fatal(err)
		}
		del := deletion(req)
		if in != nil {
			del.ProviderID, del.Scope = in.ProviderID, in.Scope
		}
		c.deleteUntilGone(d, del)
		if in == nil {
			settled := time.NewTimer(settle)
			defer settled.Stop()
			<-settled.C
			c.deleteUntilGone(d, del)
		}
		if left := c.Resources(); !slices.Equal(left, before) {
			t.Errorf("got the resources %v after the deletion, want %v", left, before)
		}
		if c.CreatedCount() > 2 {
			t.Errorf("got %d virtual machines in total, want at most 2", c.CreatedCount())
		}
	})
}

// No read by ID returns the resources of a new machine yet. The driver must trust the response to its own write.
func TestDeleteOfMachineThatReadsDoNotFind(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	d, req := c.driver(), request("a", class())
	in := c.createUntilDone(d, req)
	var ends []func()
	for _, kind := range []string{"VirtualMachines", "NetworkInterfaces", "PublicIPAddresses", "Disks"} {
		ends = append(ends, c.Inject(fakeazure.Fault{Operation: kind + "_Get", Status: http.StatusNotFound,
			Code: "ResourceNotFound"}))
	}
	del := deletion(req)
	del.ProviderID, del.Scope = in.ProviderID, in.Scope
	result, err := d.Delete(t.Context(), del)
	c.must(err)
	if result.Gone {
		t.Error("Delete reported Gone although only reads do not find the machine")
	}
	for _, end := range ends {
		end()
	}
	c.deleteUntilGone(d, del)
	c.nothingLeft()
}

func TestDriverIgnoresCaseOfLists(t *testing.T) {
	c := newCloud(t, func(o *fakeazure.Options) { o.Semantics.ListsUpper = true })
	d, req := c.driver(), request("a", class())
	in := c.createUntilDone(d, req)
	c.KeepParts()
	if _, found := c.leftovers(cluster, class()); len(found) != 1 || found[0].ProviderID != in.ProviderID {
		t.Errorf("got the instances %+v, want %s", found, in.ProviderID)
	}
	anywhere := lookup(req)
	anywhere.Class.Spec = nil
	if got, err := d.Get(t.Context(), anywhere); err != nil || got.ProviderID != in.ProviderID {
		t.Errorf("Get by tags: got %+v, %v, want %s", got, err, in.ProviderID)
	}
	c.destroy("a-")
	parts, _ := c.leftovers(cluster, class())
	if want := []string{"data-0", "data-3", "nic-0", "os"}; !slices.Equal(parts, want) {
		t.Errorf("got the leftovers %v, want %v", parts, want)
	}
	del := deletion(req)
	del.Class.Spec = nil
	c.deleteUntilGone(d, del)
	c.nothingLeft()
}

func TestDriverKeepsMachineOfOtherOwnerWithSameName(t *testing.T) {
	t.Parallel()
	for name, tags := range map[string]map[string]string{
		"without tags":          nil,
		"of another machine":    {provider.TagCluster: cluster, provider.TagMachineUID: "another"},
		"of another cluster":    {provider.TagCluster: "cluster-b", provider.TagMachineUID: "uid-of-a"},
		"with half of the tags": {provider.TagMachineUID: "uid-of-a"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, nil)
			d, req := c.driver(), request("a", class())
			in := c.createUntilDone(d, req)
			del := deletion(req)
			del.ProviderID, del.Scope = in.ProviderID, in.Scope
			c.deleteUntilGone(d, del)
			_, _, err := c.launchNamed(t.Context(), in.ProviderID[strings.LastIndex(in.ProviderID, "/")+1:], tags)
			c.must(err)
			before := c.Resources()
			if got, err := d.Create(t.Context(), req); err == nil {
				t.Errorf("Create: got %+v, want an error", got)
			}
			if result, err := d.Delete(t.Context(), del); err == nil {
				t.Errorf("Delete by provider ID: got %+v, want an error", result)
			}
			if _, err := d.Get(t.Context(), lookup(req)); !provider.IsNotFound(err) {
				t.Errorf("Get by tags: got %v, want NotFound", err)
			}
			c.deleteUntilGone(d, deletion(req))
			if left := c.Resources(); !slices.Equal(left, before) || c.CreatedCount() != 2 {
				t.Errorf("got the resources %v, want %v", left, before)
			}
		})
	}
}

func TestHugeResponseIsErrorWithLimit(t *testing.T) {
	c := newCloud(t, func(o *fakeazure.Options) { o.Semantics.ListPadding = 33 << 20 })
	_, err := c.driver().List(t.Context(), provider.ListRequest{Class: class(), ClusterID: cluster})
	if provider.CodeOf(err) != provider.Internal || !strings.Contains(err.Error(), "longer than 32 MiB") {
		t.Errorf("got %.300v, want Internal with the limit", err)
	}
}

// Azure's clock differs from the local clock by minutes, and Retry-After is a date of Azure's clock.
func TestRetryAfterUsesClockOfAzure(t *testing.T) {
	for _, skew := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		c := newCloud(t, func(o *fakeazure.Options) { o.Semantics.ClockSkew = skew })
		c.Inject(fakeazure.Fault{Operation: "*", Status: http.StatusTooManyRequests, Code: "TooManyRequests", RetryAfter: 17})
		_, err := c.driver().Get(t.Context(), lookup(request("a", class())))
		if after := provider.RetryAfter(err); provider.CodeOf(err) != provider.Throttled || after != 17*time.Second {
			t.Errorf("clock %s ahead: got %v with RetryAfter %s, want Throttled with 17s", skew, err, after)
		}
	}
}

// Azure may refuse a token before it expires by the local clock. The next call must request another token.
func TestDriverDropsRefusedToken(t *testing.T) {
	c := newCloud(t, func(o *fakeazure.Options) { o.Semantics.TokenLife = 2 * time.Second })
	d, get := c.driver(), lookup(request("a", class()))
	refused := 0
	c.eventually("the token is refused and replaced", func() (bool, string) {
		_, err := d.Get(t.Context(), get)
		switch provider.CodeOf(err) {
		case provider.NotFound:
			return refused > 0, "the token was not refused"
		case provider.Unauthenticated:
			if refused++; refused > 1 {
				t.Fatal("the same token was used again")
			}
			return false, err.Error()
		}
		t.Fatal(err)
		return false, ""
	})
}
