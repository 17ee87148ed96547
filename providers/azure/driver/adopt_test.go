package driver_test

import (
	"slices"
	"testing"

	"machinist.dev/machinist/pkg/provider"
)

// A virtual machine that somebody made without delete options leaves its disk and its interface behind when it is
// deleted. Once it is adopted, they are the Machine's, and would be paid for without end.
//
// Rule: azure-adopted-parts-go.
func TestTheDiskAndTheInterfaceOfAnAdoptedMachineGoWithIt(t *testing.T) {
	bothWays(t, func(t *testing.T, newCloud opener) {
		c := newCloud(t, nil)
		before := c.Resources()
		id, _, err := c.launchIn(t.Context(), "machines", "made-by-hand", nil)
		c.must(err)
		c.KeepParts()
		r := request("a", class())
		adopt := provider.AdoptRequest{Machine: r.Machine, Class: r.Class, ClusterID: cluster, ProviderID: id, Tags: r.Tags}
		_, err = c.driver().Adopt(t.Context(), adopt)
		c.must(err)
		_, err = c.driver().Adopt(t.Context(), adopt)
		c.must(err)
		remove := provider.DeleteRequest{Machine: r.Machine, Class: r.Class, ClusterID: cluster, ProviderID: id}
		c.eventually("the machine is gone", func() (bool, string) {
			result, err := c.driver().Delete(t.Context(), remove)
			c.must(err)
			return result.Gone, "it is not"
		})
		if left := c.Resources(); !slices.Equal(left, before) {
			t.Errorf("before there were %v, and after the machine %v", before, left)
		}
	})
}

// A change of class is a change of the machine, also of one that was adopted.
//
// Rule: adopted-counts-as-declared.
func TestAnAdoptedMachineIsTakenForWhatItsClassSaid(t *testing.T) {
	bothWays(t, func(t *testing.T, newCloud opener) {
		c := newCloud(t, nil)
		id, _, err := c.launchIn(t.Context(), "machines", "made-by-hand", nil)
		c.must(err)
		r := request("a", class())
		_, err = c.driver().Adopt(t.Context(), provider.AdoptRequest{Machine: r.Machine, Class: r.Class, ClusterID: cluster,
			ProviderID: id, Tags: r.Tags})
		c.must(err)
		update := func(class provider.Class) provider.UpdateResult {
			result, err := c.driver().Update(t.Context(), provider.UpdateRequest{Machine: r.Machine, Class: class,
				ClusterID: cluster, ProviderID: id})
			c.must(err)
			return result
		}
		if got := update(r.Class); got.Outcome == provider.UpdateNeedsReplacement {
			t.Errorf("with the class that it was adopted by: %s", got.Reason)
		}
		if got := update(class("zone", "2")); got.Outcome != provider.UpdateNeedsReplacement {
			t.Errorf("with a class for another zone: %s %s", got.Outcome, got.Reason)
		}
	})
}
