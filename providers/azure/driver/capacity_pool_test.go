package driver_test

import (
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/driver"
)

func TestSpotMachinesHaveTheirOwnCapacity(t *testing.T) {
	t.Parallel()
	const reservation = "/subscriptions/" + subscription +
		"/resourceGroups/machines/providers/Microsoft.Compute/capacityReservationGroups/c"
	pools := map[string]string{}
	for name, c := range map[string]provider.Class{
		"usual": class(), "spot": class("spot", map[string]any{}),
		"reserved": class("capacityReservationGroupID", reservation),
	} {
		pool, err := (&driver.Driver{}).CapacityPool(provider.Class{Spec: c.Spec})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		pools[name] = pool
	}
	if pools["usual"] != "" || pools["spot"] == "" || pools["reserved"] == "" || pools["spot"] == pools["reserved"] {
		t.Errorf("the pools are %q", pools)
	}
	if _, err := (&driver.Driver{}).CapacityPool(provider.Class{Spec: []byte("{")}); err == nil {
		t.Error("an invalid providerSpec has a pool")
	}
}
