package placement

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const legend = `# — what changes from outside at this point.
#   Then, for each step: the time, what the controllers did, and the machines of each class.
#   a1, a2: the first and the second option of domain a.
#   +a1 created, −a1 deleted, a1→b1 moved before it had an instance.
#   ● machine with an instance  ○ machine that waits for capacity  ! marked for replacement  ■ machine of the new set
`

func modes(p *v1beta1.Placement, fallback v1beta1.PlacementFallback,
	rebalance v1beta1.PlacementRebalance) *v1beta1.Placement {
	p.WhenUnsatisfiable, p.Rebalance = fallback, rebalance
	return p
}

// TestStories compares the decisions in typical situations with golden files.
func TestStories(t *testing.T) {
	for name, story := range map[string]func(*testing.T) *simulatedFleet{
		"spread": func(t *testing.T) *simulatedFleet {
			w := newFleet(t, zones())
			w.scale(0, 1, 2, 3, 4, 5, 6, 7)
			w.report()
			return w
		},
		"scale-down": func(t *testing.T) *simulatedFleet {
			w := newFleet(t, zones())
			w.scale(7, 6, 5, 4, 3, 2, 1, 0)
			return w
		},
		"weights": func(t *testing.T) *simulatedFleet {
			w := newFleet(t, placementOf(domainOf("a", 3, "a1"), domainOf("b", 1, "b1")))
			w.scale(1, 2, 3, 4, 8, 6, 2)
			w.report()
			return w
		},
		"bounds": func(t *testing.T) *simulatedFleet {
			w := newFleet(t, placementOf(domainOf("a", "a1", "max=1"), domainOf("b", "b1"),
				domainOf("c", "c1", "min=3", "max=4")))
			w.scale(1, 2, 3, 4, 6, 9)
			w.report()
			w.scale(2)
			w.report()
			return w
		},
		"bounds-reached": func(t *testing.T) *simulatedFleet {
			w := newFleet(t, placementOf(domainOf("a", "a1", "max=1"), domainOf("b", "b1", "max=2")))
			w.scale(5)
			w.report()
			w.scale(3)
			w.report()
			return w
		},
		"weight-0": func(t *testing.T) *simulatedFleet {
			w := newFleet(t, placementOf(domainOf("a", "a1"), domainOf("b", "b1")))
			w.scale(4)
			w.note("weight of a is 0")
			w.placement.Domains[0].Weight = new(int32(0))
			w.pass()
			w.report()
			w.scale(5, 3, 2)
			w.report()
			return w
		},
		"fallback-class": func(t *testing.T) *simulatedFleet {
			w := newFleet(t, placementOf(domainOf("a", "a1", "a2", "a3")))
			w.scale(1)
			w.exhaust("a1")
			w.scale(3)
			w.report()
			w.exhaust("a2")
			w.scale(4)
			w.report()
			w.restore("a1")
			w.scale(5, 6)
			w.after(1)
			w.scale(7, 8)
			w.report()
			return w
		},
		"zone-exceed": func(t *testing.T) *simulatedFleet {
			w := newFleet(t, zones())
			w.scale(3)
			w.exhaust("a1", "a2")
			w.scale(9)
			w.report()
			w.after(3)
			w.restore("a1", "a2")
			w.scale(10)
			w.after(3)
			w.report()
			w.scale(6, 3)
			w.report()
			return w
		},
		"zone-exceed-rebalance": func(t *testing.T) *simulatedFleet {
			w := newFleet(t, modes(zones(), v1beta1.PlacementExceed, v1beta1.RebalanceWhenIdle))
			w.exhaust("a1", "a2")
			w.scale(9)
			w.after(20)
			w.report()
			w.restore("a2")
			w.after(20)
			w.report()
			w.restore("a1")
			w.after(20)
			w.report()
			return w
		},
		"zone-wait": func(t *testing.T) *simulatedFleet {
			w := newFleet(t, modes(zones(), v1beta1.PlacementWait, v1beta1.RebalanceNever))
			w.exhaust("a1", "a2")
			w.scale(7)
			w.report()
			w.after(5)
			w.restore("a1")
			w.after(5)
			w.report()
			return w
		},
		"everything-exceed": func(t *testing.T) *simulatedFleet {
			w := newFleet(t, zones())
			w.exhaust("a1", "a2", "b1", "b2", "c1", "c2")
			w.scale(5)
			w.report()
			w.after(5)
			w.restore("b2")
			w.after(8)
			w.report()
			return w
		},
		"everything-wait": func(t *testing.T) *simulatedFleet {
			w := newFleet(t, modes(zones(), v1beta1.PlacementWait, v1beta1.RebalanceNever))
			w.exhaust("a1", "a2", "b1", "b2", "c1", "c2")
			w.scale(5)
			w.report()
			w.restore("b2")
			w.after(8)
			w.report()
			w.restore("a1", "c1")
			w.after(8)
			w.report()
			return w
		},
		"flapping": func(t *testing.T) *simulatedFleet {
			w := newFleet(t, placementOf(domainOf("a", "a1", "a2"), domainOf("b", "b1")))
			w.scale(4)
			for n := range 3 {
				w.exhaust("a1")
				w.scale(w.replicas + 2)
				w.after(2)
				w.restore("a1")
				w.scale(w.replicas + 1 + n)
				w.after(2)
			}
			w.report()
			return w
		},
		"missing-class": func(t *testing.T) *simulatedFleet {
			w := newFleet(t, placementOf(domainOf("a", "a1", "a2"), domainOf("b", "b1", "max=1")))
			w.note("class a1 is deleted")
			w.memory["a1"] = Capacity{Missing: true}
			w.scale(3)
			w.report()
			w.note("class a2 is deleted")
			w.memory["a2"] = Capacity{Missing: true}
			w.scale(5)
			w.report()
			return w
		},
		"rollout-surge": func(t *testing.T) *simulatedFleet {
			w := newFleet(t, placementOf(domainOf("a", 2, "a1"), domainOf("b", "b1"), domainOf("c", "c1")))
			w.scale(7)
			w.roll(1, 0)
			return w
		},
		"rollout-unavailable": func(t *testing.T) *simulatedFleet {
			w := newFleet(t, zones())
			w.scale(5)
			w.roll(0, 1)
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, name, story(t).log.String())
		})
	}
}

// roll replaces all machines by machines of a new set, one at a time.
func (w *simulatedFleet) roll(surge, unavailable int) {
	w.note("rollout, maxSurge %d, maxUnavailable %d", surge, unavailable)
	old := w.set
	w.set = "new"
	for {
		isOld := func(m *simulatedMachine) bool { return m.set == old }
		anyOld := slices.ContainsFunc(w.machines, isOld)
		switch {
		case len(w.machines) < w.replicas+surge && (len(w.machines) < w.replicas || anyOld):
			w.create(New(w.state(w.set)))
			w.launch()
		case anyOld:
			w.delete(New(w.state(old)), old, 1)
		default:
			return
		}
		w.flush()
		if skew := w.skew(); skew >= 1 {
			// The additional machine of a surge is in no share.
			w.t.Errorf("the skew is %v during the rollout:\n%s", skew, w.log.String())
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	got = legend + "\n" + got
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the decisions have changed; check them, and run the test with -update if they are right.\ngot:\n%s\nwant:\n%s",
			got, want)
	}
}
