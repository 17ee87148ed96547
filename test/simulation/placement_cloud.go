package simulation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// This file gives the cloud zones. A pool contains the instances of one type in one zone. The cloud may have no
// capacity in a pool.

// zones and instanceTypes are the names of all zones and of the types in each zone. The classes of the pools are named
// after both, for example z1-small.
var (
	zones         = []string{"z1", "z2", "z3"}
	instanceTypes = []string{"small", "large"}
)

func classIn(zone, instanceType string) string { return zone + "-" + instanceType }

// createZones creates a class for each pool.
func createZones() Action {
	return Action{Name: "create the classes of the zones", Do: func(ctx context.Context, _ *World, c client.Client) error {
		for _, zone := range zones {
			for _, kind := range instanceTypes {
				class := classOf(classIn(zone, kind), "plain")
				class.Spec.ProviderSpec = &runtime.RawExtension{
					Raw: fmt.Appendf(nil, `{"kind":"Fake","image":"a","zone":%q,"type":%q}`, zone, kind)}
				if err := c.Create(ctx, class); err != nil {
					return err
				}
			}
		}
		return nil
	}}
}

// place contains the fields of a provider spec that name a pool.
type place struct {
	Zone string `json:"zone"`
	Type string `json:"type"`
}

func placeOf(spec []byte) (p place) {
	_ = json.Unmarshal(spec, &p) // A corrupted spec has no place.
	return place{cmp.Or(p.Zone, "r-1"), cmp.Or(p.Type, "small")}
}

func (p place) String() string { return classIn(p.Zone, p.Type) }

// pools contains the capacity of the cloud, and its answers to requests for instances. The keys are the names of pools.
type pools struct {
	// limits contains the maximum numbers of instances, including those that are being deleted. A pool without a limit
	// always has capacity.
	limits map[string]int
	// refusals contains the times of all refusals since the last successful creation. lastRefusal and lastSuccess are
	// the times of the last answers.
	refusals                 map[string][]time.Time
	lastRefusal, lastSuccess map[string]time.Time
}

func (p pools) clone() pools {
	p.limits, p.refusals = maps.Clone(p.limits), maps.Clone(p.refusals)
	p.lastRefusal, p.lastSuccess = maps.Clone(p.lastRefusal), maps.Clone(p.lastSuccess)
	return p
}

// hasRoom reports whether the cloud can create another instance in a pool.
func (c *Cloud) hasRoom(pool string) bool {
	limit, limited := c.pools.limits[pool]
	if !limited {
		return true
	}
	n := 0
	for _, in := range c.instances {
		if placeOf([]byte(in.spec)).String() == pool && in.State != provider.StateFailed {
			n++
		}
	}
	return n < limit
}

// checkPool returns an error if the cloud has no capacity for an instance.
func (c *Cloud) checkPool(spec []byte) error {
	if pool := placeOf(spec).String(); !c.hasRoom(pool) {
		return provider.Errorf(provider.ResourceExhausted, "no capacity for %s", pool)
	}
	return nil
}

// noteRequest records the answer to a request for an instance.
func (c *Cloud) noteRequest(spec []byte, err error) {
	pool, p := placeOf(spec).String(), &c.pools
	switch {
	case provider.CodeOf(err) == provider.ResourceExhausted:
		if p.refusals == nil {
			p.refusals, p.lastRefusal = map[string][]time.Time{}, map[string]time.Time{}
		}
		p.refusals[pool] = append(slices.Clip(p.refusals[pool]), c.now())
		p.lastRefusal[pool] = c.now()
	case err == nil:
		if p.lastSuccess == nil {
			p.lastSuccess = map[string]time.Time{}
		}
		delete(p.refusals, pool)
		p.lastSuccess[pool] = c.now()
	}
}

// limit sets the maximum number of instances in pools. The pools are named "zone" or "zone-type". With a negative
// number, the pools have no limit.
func limit(n int, names ...string) Action {
	name := fmt.Sprintf("the cloud has capacity for %d instances in each of %v", n, names)
	if n < 0 {
		name = fmt.Sprintf("the cloud has capacity again in %v", names)
	}
	return Action{Name: name, Do: func(_ context.Context, w *World, _ client.Client) error {
		p := &w.cloud.pools
		if p.limits == nil {
			p.limits = map[string]int{}
		}
		for _, zone := range zones {
			for _, kind := range instanceTypes {
				if pool := classIn(zone, kind); !slices.Contains(names, zone) && !slices.Contains(names, pool) {
					continue
				} else if n < 0 {
					delete(p.limits, pool)
				} else {
					p.limits[pool] = n
				}
			}
		}
		return nil
	}}
}

// loseZone makes all instances of a zone vanish.
func loseZone(zone string) Action {
	return Action{Name: "the instances of zone " + zone + " vanish", Do: func(_ context.Context, w *World, _ client.Client) error {
		recorded := w.recordedInstances()
		w.cloud.instances = slices.DeleteFunc(w.cloud.instances, func(in *instance) bool {
			lost := in.Zone == zone && slices.Contains(recorded, in)
			if lost {
				w.broken++
			}
			return lost
		})
		return nil
	}}
}

// rightPlace reports whether an instance has the spec of the class of its machine.
func (w *World) rightPlace(m *v1beta1.Machine, in *instance) bool {
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineClass")) {
		if c := o.(*v1beta1.MachineClass); c.Name == classNameOf(m) && strings.Contains(in.spec, `"zone"`) {
			return string(c.Spec.ProviderSpec.Raw) == in.spec
		}
	}
	return true
}
