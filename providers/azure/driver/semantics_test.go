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

// lag is how late the cloud of these tests is with whatever it is late with. It is well below settle.
const (
	lag    = 200 * time.Millisecond
	settle = 800 * time.Millisecond
)

// conduct is something that a cloud may do to its users.
type conduct struct {
	fakeazure.Semantics
	listLag time.Duration
	quota   int
	faults  []fakeazure.Fault
	// unknown says that a read by ID may not find what is there.
	unknown bool
	overSDK bool // also behind the SDK's fake servers, which drop what their types lack
}

func conducts() map[string]conduct {
	create := "VirtualMachines_CreateOrUpdate"
	return map[string]conduct{
		"reads do not know what is new": {Semantics: fakeazure.Semantics{NewUnknown: lag}, unknown: true, overSDK: true},
		"reads know what is gone":       {Semantics: fakeazure.Semantics{GoneKnown: lag}, overSDK: true},
		"tags appear late":              {Semantics: fakeazure.Semantics{TagsLate: lag}, overSDK: true},
		"states go back":                {Semantics: fakeazure.Semantics{StateBack: lag}, overSDK: true},
		"lists lag":                     {listLag: lag, overSDK: true},
		"lists miss a page":             {Semantics: fakeazure.Semantics{ListsMissPage: true}},
		"lists repeat and turn around":  {Semantics: fakeazure.Semantics{ListsRepeat: true, ListsReverse: true}},
		"lists are in upper case":       {Semantics: fakeazure.Semantics{ListsUpper: true}, overSDK: true},
		"quota frees late":              {Semantics: fakeazure.Semantics{QuotaLag: lag}, quota: 4},
		"tokens end early":              {Semantics: fakeazure.Semantics{TokenLife: time.Second}},
		"the clock is ahead":            {Semantics: fakeazure.Semantics{ClockSkew: 5 * time.Minute}},
		"the clock is behind":           {Semantics: fakeazure.Semantics{ClockSkew: -5 * time.Minute}},
		"answers are lost": {faults: []fakeazure.Fault{
			{Operation: create, LoseAnswer: true, Times: 1}, {Operation: "NetworkInterfaces_CreateOrUpdate",
				LoseAnswer: true, Times: 1},
			{Operation: "VirtualMachines_Delete", LoseAnswer: true, Times: 1},
		}},
		"it is done after its error": {faults: []fakeazure.Fault{
			{Operation: create, Status: http.StatusGatewayTimeout, Code: "GatewayTimeout", Late: lag, Times: 1},
			{Operation: "PublicIPAddresses_CreateOrUpdate", Status: http.StatusInternalServerError, Code: "InternalServerError",
				Late: lag, Times: 1},
		}},
		"throttling without a time": {faults: []fakeazure.Fault{{Operation: "*", Status: http.StatusTooManyRequests,
			Code: "TooManyRequests", Skip: 1, Times: 3}}},
		"throttling with a time": {faults: []fakeazure.Fault{{Operation: "*", Status: http.StatusTooManyRequests,
			Code: "TooManyRequests", RetryAfter: 1, Skip: 3, Times: 3}}},
		"much of it at once": {
			Semantics: fakeazure.Semantics{
				NewUnknown: lag, GoneKnown: lag, TagsLate: 2 * lag, StateBack: lag, ListsRepeat: true, ListsReverse: true,
				ListsUpper: true, ClockSkew: time.Minute,
			},
			listLag: lag, unknown: true,
			faults: []fakeazure.Fault{{Operation: create, LoseAnswer: true, Times: 1}},
		},
	}
}

// open makes a cloud that does it, with a machine of another's in it.
func (with conduct) open(t *testing.T, newCloud opener) *cloud {
	t.Helper()
	c := newCloud(t, func(o *fakeazure.Options) {
		o.Boot, o.Stop, o.Change, o.ListLag, o.Semantics, o.CoreQuota = 50*time.Millisecond, 50*time.Millisecond, 10*time.Millisecond, with.listLag, with.Semantics, with.quota
	})
	_, _, err := c.launch(t.Context(), map[string]string{"owner": "somebody"})
	c.must(err)
	for _, f := range with.faults {
		c.Inject(f)
	}
	return c
}

// mayRetry reports whether Machinist tries a call again that failed so, by itself and soon.
func mayRetry(err error) bool {
	return slices.Contains([]provider.Code{
		provider.Throttled, provider.Unavailable, provider.DeadlineExceeded, provider.Aborted, provider.AlreadyExists,
		provider.ResourceExhausted,
		provider.Unauthenticated, provider.Internal,
	}, provider.CodeOf(err))
}

// created creates until there is an instance.
func (c *cloud) created(d provider.Driver, req provider.CreateRequest) *provider.Instance {
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

// removed deletes until there is nothing.
func (c *cloud) removed(d provider.Driver, req provider.DeleteRequest) {
	c.Helper()
	c.eventually("Delete reports Gone", func() (bool, string) {
		result, err := d.Delete(c.Context(), req)
		if err != nil && !mayRetry(err) {
			c.Fatal(err)
		}
		return err == nil && result.Gone, fmt.Sprint(err)
	})
}

func underAllConducts(t *testing.T, test func(*testing.T, conduct, opener)) {
	t.Helper()
	for name, with := range conducts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, with, newCloud)
		})
		if with.overSDK {
			t.Run(name+", through the SDK's fakes", func(t *testing.T) {
				t.Parallel()
				test(t, with, newCloudBehindSDK)
			})
		}
	}
}

// Whatever Azure does to its users: one virtual machine is made, it is followed until it runs, and when Delete
// reports Gone nothing of it is left and nothing else is touched.
func TestALifeUnderWhateverAzureDoes(t *testing.T) {
	underAllConducts(t, func(t *testing.T, with conduct, newCloud opener) {
		c := with.open(t, newCloud)
		before := c.Resources()
		for n, name := range []string{"a", "b"} {
			d, req := c.driver(), request(name, class())
			in := c.created(d, req)
			get := lookup(req)
			get.ProviderID, get.Scope = in.ProviderID, in.Scope
			c.eventually("the machine runs", func() (bool, string) {
				now, err := d.Get(t.Context(), get)
				switch {
				case with.unknown && provider.IsNotFound(err), err != nil && mayRetry(err):
					return false, err.Error()
				case err != nil:
					t.Fatal(err)
				case now.ProviderID != in.ProviderID:
					t.Fatalf("the provider ID was %s and is %s", in.ProviderID, now.ProviderID)
				}
				return now.State == provider.StateRunning && now.OwnedBy(cluster, req.Machine) == nil, string(now.State)
			})
			if again := c.created(d, req); again.ProviderID != in.ProviderID {
				t.Errorf("Create returns %s and then %s", in.ProviderID, again.ProviderID)
			}
			del := deletion(req)
			del.ProviderID, del.Scope = in.ProviderID, in.Scope
			c.removed(d, del)
			if left := c.Resources(); !slices.Equal(left, before) {
				t.Errorf("there is left %v, of what was before: %v", left, before)
			}
			if made := c.Made(); made != n+2 { // With another's.
				t.Errorf("there have been %d virtual machines, want %d", made, n+2)
			}
		}
	})
}

// A Machine that goes as soon as it has come: Create is tried once, and deleted by its tags. Gone counts when it is
// said twice, CreateSettle apart.
func TestADeletionRightAfterACreation(t *testing.T) {
	underAllConducts(t, func(t *testing.T, with conduct, newCloud opener) {
		c := with.open(t, newCloud)
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
		c.removed(d, del)
		if in == nil {
			settled := time.NewTimer(settle)
			defer settled.Stop()
			<-settled.C
			c.removed(d, del)
		}
		if left := c.Resources(); !slices.Equal(left, before) {
			t.Errorf("there is left %v, of what was before: %v", left, before)
		}
		if c.Made() > 2 {
			t.Errorf("there have been %d virtual machines", c.Made())
		}
	})
}

// Every read lags behind the creation. What a write says counts.
func TestADeletionOfWhatReadsDoNotKnowYet(t *testing.T) {
	bothWays(t, func(t *testing.T, newCloud opener) {
		c := newCloud(t, nil)
		d, req := c.driver(), request("a", class())
		in := c.created(d, req)
		var ends []func()
		for _, of := range []string{"VirtualMachines", "NetworkInterfaces", "PublicIPAddresses", "Disks"} {
			ends = append(ends, c.Inject(fakeazure.Fault{Operation: of + "_Get", Status: http.StatusNotFound,
				Code: "ResourceNotFound"}))
		}
		del := deletion(req)
		del.ProviderID, del.Scope = in.ProviderID, in.Scope
		result, err := d.Delete(t.Context(), del)
		c.must(err)
		if result.Gone {
			t.Error("a machine that no read knows, and a deletion does, is reported Gone")
		}
		for _, end := range ends {
			end()
		}
		c.removed(d, del)
		c.nothingLeft()
	})
}

func TestInstancesAreTheSameInWhateverCaseTheyAreListed(t *testing.T) {
	c := newCloud(t, func(o *fakeazure.Options) { o.Semantics.ListsUpper = true })
	d, req := c.driver(), request("a", class())
	in := c.created(d, req)
	c.KeepParts()
	if _, found := c.leftovers(cluster, class()); len(found) != 1 || found[0].ProviderID != in.ProviderID {
		t.Errorf("listed %+v, want %s", found, in.ProviderID)
	}
	anywhere := lookup(req)
	anywhere.Class.Spec = nil
	if got, err := d.Get(t.Context(), anywhere); err != nil || got.ProviderID != in.ProviderID {
		t.Errorf("Get by tags: %+v, %v, want %s", got, err, in.ProviderID)
	}
	c.destroy("a-")
	parts, _ := c.leftovers(cluster, class())
	if want := []string{"data-0", "data-3", "nic-0", "os"}; !slices.Equal(parts, want) {
		t.Errorf("left are %v, want %v", parts, want)
	}
	del := deletion(req)
	del.Class.Spec = nil
	c.removed(d, del)
	c.nothingLeft()
}

func TestAMachineOfOthersWithOurNameIsLeftAlone(t *testing.T) {
	bothWays(t, func(t *testing.T, newCloud opener) {
		for name, tags := range map[string]map[string]string{
			"without tags":          nil,
			"of another's machine":  {provider.TagCluster: cluster, provider.TagMachineUID: "another"},
			"of another cluster":    {provider.TagCluster: "cluster-b", provider.TagMachineUID: "uid-of-a"},
			"with half of the tags": {provider.TagMachineUID: "uid-of-a"},
		} {
			t.Run(name, func(t *testing.T) {
				c := newCloud(t, nil)
				d, req := c.driver(), request("a", class())
				in := c.created(d, req)
				del := deletion(req)
				del.ProviderID, del.Scope = in.ProviderID, in.Scope
				c.removed(d, del)
				_, _, err := c.launchNamed(t.Context(), in.ProviderID[strings.LastIndex(in.ProviderID, "/")+1:], tags)
				c.must(err)
				before := c.Resources()
				if got, err := d.Create(t.Context(), req); err == nil {
					t.Errorf("Create returns %+v", got)
				}
				if result, err := d.Delete(t.Context(), del); err == nil {
					t.Errorf("Delete by provider ID: %+v", result)
				}
				if _, err := d.Get(t.Context(), lookup(req)); !provider.IsNotFound(err) {
					t.Errorf("Get by tags: %v", err)
				}
				c.removed(d, deletion(req))
				if left := c.Resources(); !slices.Equal(left, before) || c.Made() != 2 {
					t.Errorf("there is left %v, of what was before: %v", left, before)
				}
			})
		}
	})
}

func TestAHugeAnswerIsAnErrorThatNamesTheLimit(t *testing.T) {
	c := newCloud(t, func(o *fakeazure.Options) { o.Semantics.ListPadding = 33 << 20 })
	_, err := c.driver().List(t.Context(), provider.ListRequest{Class: class(), ClusterID: cluster})
	if provider.CodeOf(err) != provider.Internal || !strings.Contains(err.Error(), "longer than 32 MiB") {
		t.Errorf("got %.300v", err)
	}
}

// Azure's clock is minutes ahead of ours, and says how long to wait by it.
func TestPatienceIsMeasuredByAzuresClock(t *testing.T) {
	for _, skew := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		c := newCloud(t, func(o *fakeazure.Options) { o.Semantics.ClockSkew = skew })
		c.Inject(fakeazure.Fault{Operation: "*", Status: http.StatusTooManyRequests, Code: "TooManyRequests", RetryAfter: 17})
		_, err := c.driver().Get(t.Context(), lookup(request("a", class())))
		if after := provider.RetryAfter(err); provider.CodeOf(err) != provider.Throttled || after != 17*time.Second {
			t.Errorf("with a clock that is %s ahead: %v, again after %s", skew, err, after)
		}
	}
}

// A token is refused before its time is over, by our clock. The next call signs in again.
func TestATokenThatIsRefusedIsNotUsedAgain(t *testing.T) {
	c := newCloud(t, func(o *fakeazure.Options) { o.Semantics.TokenLife = 2 * time.Second })
	d, get := c.driver(), lookup(request("a", class()))
	refused := 0
	c.eventually("the token was refused and another one was taken", func() (bool, string) {
		_, err := d.Get(t.Context(), get)
		switch provider.CodeOf(err) {
		case provider.NotFound:
			return refused > 0, "it was not refused"
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
