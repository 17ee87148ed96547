package cloud

import (
	"slices"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/catalog"
)

func (w *testCloud) setSemantics(patch simcloud.SemanticsPatch) {
	w.t.Helper()
	w.set(simcloud.SettingsPatch{Semantics: &patch})
}

func (w *testCloud) listedIDs(o simcloud.ListInstancesOptions) (ids []string) {
	w.t.Helper()
	list, err := w.List("alice", o)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, in := range list.Instances {
		ids = append(ids, in.ID)
	}
	return ids
}

func (w *testCloud) delete(id string) {
	w.t.Helper()
	if _, err := w.Delete("alice", id); err != nil {
		w.t.Fatal(err)
	}
}

func (w *testCloud) wantListed(o simcloud.ListInstancesOptions, want ...string) {
	w.t.Helper()
	if got := w.listedIDs(o); !slices.Equal(got, want) {
		w.t.Errorf("the list has %v, expected %v", got, want)
	}
}

func TestReadsListsAndTagsLagSeparately(t *testing.T) {
	tagged := simcloud.ListInstancesOptions{Tags: map[string]string{"a": "1"}}
	w := newTestCloud(t)
	w.setSemantics(simcloud.SemanticsPatch{GetLag: seconds(10), ListLag: seconds(5)})
	in := w.create(withTags("a", "1"))
	w.wantState(in.ID, "")
	w.wantListed(tagged)
	w.pass(5 * time.Second)
	w.wantState(in.ID, "")
	w.wantListed(tagged, in.ID)
	w.pass(5 * time.Second)
	w.wantState(in.ID, simcloud.StatePending)

	w.setSemantics(simcloud.SemanticsPatch{GetLag: seconds(0), ListLag: seconds(0), TagLag: seconds(10)})
	in = w.create(withTags("a", "2"))
	tagged.Tags["a"] = "2"
	w.pass(time.Second)
	w.wantState(in.ID, simcloud.StateRunning)
	if got, err := w.Get("alice", in.ID); err != nil || len(got.Tags) != 0 {
		t.Errorf("tags %v, error %v", got.Tags, err)
	}
	if now, err := w.UpdateTags("alice", in.ID, simcloud.UpdateTagsRequest{}); err != nil || now.Tags["a"] != "2" {
		t.Errorf("the answer to a write has a lag: %v %v", now, err)
	}
	w.wantListed(tagged)
	w.pass(9 * time.Second)
	w.wantListed(tagged, in.ID)
}

func TestListsOmitAndRepeat(t *testing.T) {
	w := newTestCloud(t)
	a, b := w.create().ID, w.create().ID
	all := simcloud.ListInstancesOptions{}
	two := 2
	w.setSemantics(simcloud.SemanticsPatch{ListOmits: &two})
	w.wantListed(all, a, b)
	w.wantListed(all, b)
	w.wantListed(all, a, b)
	none, yes := 0, true
	w.setSemantics(simcloud.SemanticsPatch{ListOmits: &none, ListRepeats: &yes})
	w.wantListed(all, b, a, b)
	// The instances on each page are in reverse order. But the next page still contains instances that were created
	// later.
	list, err := w.List("alice", simcloud.ListInstancesOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	w.wantListed(simcloud.ListInstancesOptions{Limit: 1, NextToken: list.NextToken}, b, b)
}

func TestPreviousStateReturns(t *testing.T) {
	w := newTestCloud(t)
	in := w.create()
	w.setSemantics(simcloud.SemanticsPatch{StateReturns: seconds(5)})
	w.wantState(in.ID, simcloud.StatePending)
	w.wantState(in.ID, simcloud.StatePending) // A new instance has no previous state.
	w.pass(time.Second)
	w.wantState(in.ID, simcloud.StateRunning)
	w.wantState(in.ID, simcloud.StatePending)
	w.wantState(in.ID, simcloud.StateRunning)
	w.pass(5 * time.Second)
	w.wantState(in.ID, simcloud.StateRunning)
	w.wantState(in.ID, simcloud.StateRunning)
}

func TestAnswersInUpperCase(t *testing.T) {
	w := newTestCloud(t)
	yes := true
	w.setSemantics(simcloud.SemanticsPatch{OtherCase: &yes})
	in := w.create()
	again, err := w.Get("alice", in.ID)
	if err != nil {
		t.Fatal(err)
	}
	if again.ProviderID == in.ProviderID || !strings.EqualFold(again.ProviderID, in.ProviderID) ||
		again.Zone != "SIM-1A" || !strings.HasPrefix(again.ProviderID, "sim://") {
		t.Errorf("got %q after %q", again.ProviderID, in.ProviderID)
	}
	if rec := w.Dump().Records[0]; rec.ID != in.ID || rec.Zone != "sim-1a" {
		t.Errorf("the dump has %+v", rec)
	}
}

func TestAddressOutlivesItsInstance(t *testing.T) {
	w := newTestCloud(t, func(c *catalog.Catalog) {
		c.Settings.TokenRetention = *seconds(10)
		c.Settings.TerminatedVisible = *seconds(5)
	})
	yes := true
	w.setSemantics(simcloud.SemanticsPatch{KeepAddresses: &yes})
	in := w.create(withTags("a", "1"))
	mine := simcloud.ListInstancesOptions{Tags: map[string]string{"a": "1"}}
	address := func() *simcloud.Address {
		t.Helper()
		list, err := w.Addresses("alice", mine)
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Addresses) == 0 {
			return nil
		}
		return &list.Addresses[0]
	}
	a := address()
	if a == nil || !a.InUse || a.InstanceID != in.ID || a.IP != in.PrivateIPs[0] {
		t.Fatalf("address %+v of %+v", a, in)
	}
	wantCode(t, w.DeleteAddress("alice", a.ID), simcloud.CodeConflict, in.ID)
	wantCode(t, w.DeleteAddress("bob", a.ID), simcloud.CodeNotFound, a.ID)
	w.delete(in.ID)
	w.pass(time.Hour)
	w.restart()
	if a = address(); a == nil || a.InUse || a.Tags["a"] != "1" {
		t.Fatalf("the address is %+v", a)
	}
	if other := w.create(); other.PrivateIPs[0] == a.IP {
		t.Error("another instance has the address")
	}
	w.checkInvariants()
	wantCode(t, w.DeleteAddress("guest", a.ID), simcloud.CodeNotFound, a.ID)
	if err := w.DeleteAddress("alice", a.ID); err != nil {
		t.Fatal(err)
	}
	wantCode(t, w.DeleteAddress("alice", a.ID), simcloud.CodeNotFound, a.ID)
	if a = address(); a != nil {
		t.Errorf("the address still exists: %+v", a)
	}
	w.step()
	if n := len(w.Dump().Records); n != 1 {
		t.Errorf("%d records: the instance was not deleted", n)
	}
	w.checkInvariants()
}

func TestQuotaLag(t *testing.T) {
	one := 1
	w := newTestCloud(t, func(c *catalog.Catalog) {
		c.Accounts[0].Quotas = map[string]simcloud.Quota{"sim-1": {MaxInstances: &one}}
	})
	w.setSemantics(simcloud.SemanticsPatch{QuotaLag: seconds(30)})
	w.delete(w.create().ID)
	w.pass(time.Second) // The instance is terminated.
	w.checkInvariants()
	w.pass(29 * time.Second)
	w.restart()
	_, err := w.Create("alice", request(), nil)
	wantCode(t, err, simcloud.CodeQuotaExceeded, "1 of 1")
	w.pass(time.Second)
	w.create()
	w.checkInvariants()
}

func TestClockOffset(t *testing.T) {
	w := newTestCloud(t)
	offset := simcloud.Duration(-10 * time.Minute)
	w.setSemantics(simcloud.SemanticsPatch{ClockOffset: &offset})
	in := w.create()
	if want := w.clock.Now().Add(-10 * time.Minute); !in.LaunchTime.Equal(want) {
		t.Errorf("launched at %s, expected %s", in.LaunchTime, want)
	}
	w.delete(in.ID)
	w.pass(time.Second)
	got, err := w.Get("alice", in.ID)
	if err != nil {
		t.Fatal(err)
	}
	if want := w.clock.Now().Add(-10 * time.Minute); got.TerminationTime == nil || !got.TerminationTime.Equal(want) {
		t.Errorf("terminated at %v, expected %s", got.TerminationTime, want)
	}
	if rec := w.Dump().Records[0]; !rec.TerminationTime.Equal(w.clock.Now()) {
		t.Errorf("the time in the dump is %v", rec.TerminationTime)
	}
}

func TestInvalidSemanticsAreRefused(t *testing.T) {
	w := newTestCloud(t)
	negative, day := -1, simcloud.Duration(25*time.Hour)
	for field, patch := range map[string]simcloud.SemanticsPatch{
		"semantics.getLag":        {GetLag: seconds(-1)},
		"semantics.listOmits":     {ListOmits: &negative},
		"semantics.answerPadding": {AnswerPadding: &negative},
		"semantics.clockOffset":   {ClockOffset: &day},
	} {
		_, err := w.PatchSettings(simcloud.SettingsPatch{Semantics: &patch})
		wantCode(t, err, simcloud.CodeInvalidParameter, field)
	}
}
