package machinedeployment

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const legend = `# — strategy, or what changes from outside at this point.
#   "a 3→2": one reconcile of the deployment changed the replicas of set a from 3 to 2.
#       "a 2 ●●": set a, its replicas, and its machines after the sets have acted:
#       ● available  ○ coming up  ◐ unhealthy  ✕ failed
#       ◇ waiting for its update  ◈ being updated  ◆ the provider rejected the update
#       (●) being deleted  ! marked for deletion  * selected to be updated
#       →b:2 hands over up to 2 machines to set b, →b:2* only selected ones  ←a receives machines of set a
#   waiting: why the rollout does not advance.
`

// TestRolloutsStepByStep simulates whole rollouts and checks the bounds at every write. The golden files show the
// steps. (rule surge-and-unavailable-kept, rule unhealthy-old-machines-first, rule scale-during-rollout-in-proportion,
// rule failing-revision-stops, rule recreate-and-on-delete, rule pause-stops-rollout-not-scaling, rule
// in-place-hands-over, rule updating-counts-as-unavailable, rule failing-in-place-stops, rule manual-selection-updates,
// rule withdrawn-selection-harmless, rule waits-for-selection, rule partition-keeps-old,
// rule pause-after-first-machines)
func TestRolloutsStepByStep(t *testing.T) {
	const (
		rolling  = v1beta1.StrategyRollingUpdate
		recreate = v1beta1.StrategyRecreate
		onDelete = v1beta1.StrategyOnDelete
		inPlace  = v1beta1.StrategyInPlace
	)
	tests := []struct {
		name  string
		start func(t *testing.T) *simulatedDeployment
		play  func(w *simulatedDeployment)
	}{
		{"rolling-surge-1", started(rolling, 3, 1, 0), func(w *simulatedDeployment) {
			w.note("template b")
			w.template = "b"
			w.playUntilStable()
		}},
		{"rolling-unavailable-1", started(rolling, 3, 0, 1), func(w *simulatedDeployment) {
			w.note("template b")
			w.template = "b"
			w.playUntilStable()
		}},
		{"rolling-surge-3-unavailable-2", started(rolling, 10, 3, 2), func(w *simulatedDeployment) {
			w.note("template b")
			w.template = "b"
			w.playUntilStable()
		}},
		{"rolling-scaled-up-midway", started(rolling, 6, 2, 0), func(w *simulatedDeployment) {
			w.midway("b")
			w.note("12 replicas")
			w.replicas = 12
			w.playUntilStable()
		}},
		{"rolling-scaled-down-midway", started(rolling, 10, 2, 0), func(w *simulatedDeployment) {
			w.midway("b")
			w.note("5 replicas")
			w.replicas = 5
			w.playUntilStable()
		}},
		{"rolling-scaled-down-by-marks", started(rolling, 6, 2, 0), func(w *simulatedDeployment) {
			w.midway("b")
			w.note("3 machines of a are marked for deletion, and replicas are lowered by 3")
			for _, m := range w.set("a").machines[:3] {
				m.marked = true
			}
			w.replicas = 3
			w.playUntilStable()
		}},
		{"rolling-to-zero", started(rolling, 4, 1, 0), func(w *simulatedDeployment) {
			w.midway("b")
			w.note("0 replicas")
			w.replicas = 0
			w.playUntilStable()
		}},
		{"rolling-failing-then-fixed", started(rolling, 3, 1, 0), func(w *simulatedDeployment) {
			w.note("template b, whose machines fail to launch; its set replaces failed machines")
			w.bad["b"] = true
			w.template = "b"
			for range 3 {
				w.playUntilStable()
				for _, m := range w.set("b").machines {
					m.deleting = true
				}
			}
			w.playUntilStable()
			w.note("8 replicas: only the old revision grows")
			w.replicas = 8
			w.playUntilStable()
			w.note("template c")
			w.template = "c"
			w.playUntilStable()
		}},
		{"rolling-undone-midway", started(rolling, 5, 2, 1), func(w *simulatedDeployment) {
			w.midway("b")
			w.note("template a again")
			w.template = "a"
			w.playUntilStable()
		}},
		{"rolling-over", started(rolling, 5, 2, 0), func(w *simulatedDeployment) {
			w.midway("b")
			w.note("template c")
			w.template = "c"
			w.playUntilStable()
		}},
		{"rolling-partition", started(rolling, 5, 1, 0), func(w *simulatedDeployment) {
			w.note("partition 3, template b")
			w.partition, w.template = 3, "b"
			w.playUntilStable()
			w.note("a machine of the old revision is deleted")
			w.set("a").machines[0].deleting = true
			w.playUntilStable()
			w.note("7 replicas")
			w.replicas = 7
			w.playUntilStable()
			w.note("2 replicas")
			w.replicas = 2
			w.playUntilStable()
			w.note("5 replicas")
			w.replicas = 5
			w.playUntilStable()
			w.note("template c")
			w.template = "c"
			w.playUntilStable()
			w.note("partition 1")
			w.partition = 1
			w.playUntilStable()
			w.note("partition 4: no machine returns to the old revision")
			w.partition = 4
			w.playUntilStable()
			w.note("partition 0")
			w.partition = 0
			w.playUntilStable()
		}},
		{"rolling-pause-after", started(rolling, 5, 1, 0), func(w *simulatedDeployment) {
			w.note("pauseAfter 1 machine, template b")
			w.pauseAfter, w.template = 1, "b"
			w.playUntilStable()
			w.note("8 replicas")
			w.replicas = 8
			w.playUntilStable()
			w.note("3 replicas")
			w.replicas = 3
			w.playUntilStable()
			w.note("promoted")
			w.pauseAfter = 0
			w.playUntilStable()
		}},
		{"rolling-partition-class-replaced", startedWithClasses(rolling, 6, 1, 0), func(w *simulatedDeployment) {
			w.note("partition 2, and class y is replaced by z: machines of class x are handed over")
			w.partition, w.template = 2, "b"
			w.playUntilStable()
			w.note("partition 0")
			w.partition = 0
			w.playUntilStable()
		}},
		{"rolling-unhealthy-first", started(rolling, 4, 1, 0), func(w *simulatedDeployment) {
			w.note("the 3rd machine becomes unhealthy, template b")
			w.setState(w.set("a").machines[2], unhealthyState)
			w.template = "b"
			w.playUntilStable()
		}},
		{"rolling-class-replaced", startedWithClasses(rolling, 6, 1, 0), func(w *simulatedDeployment) {
			w.note("class y is replaced by z: machines of class x are handed over")
			w.template = "b"
			w.playUntilStable()
		}},
		{"rolling-class-added-and-taken-back", startedWithClasses(rolling, 4, 0, 1), func(w *simulatedDeployment) {
			w.note("class z is added: all machines are handed over")
			w.template = "c"
			w.playUntilStable()
			w.note("class z is removed again, and 6 replicas")
			w.template = "a"
			w.replicas = 6
			w.playUntilStable()
		}},
		{"recreate-class-replaced", startedWithClasses(recreate, 4, 0, 0), func(w *simulatedDeployment) {
			w.note("class y is replaced by z: only machines of class y are recreated")
			w.template = "b"
			w.playUntilStable()
		}},
		{"rolling-during-an-outage", started(rolling, 4, 1, 1), func(w *simulatedDeployment) {
			w.note("all machines become unhealthy; template b, whose machines do not become available either")
			w.outage = true
			for _, m := range w.set("a").machines {
				w.setState(m, unhealthyState)
			}
			w.template = "b"
			w.playUntilStable()
			w.note("the outage is over")
			w.outage = false
			for _, m := range w.set("a").machines {
				w.setState(m, available)
			}
			w.playUntilStable()
		}},
		{"rolling-paused-midway", started(rolling, 4, 1, 0), func(w *simulatedDeployment) {
			w.midway("b")
			w.note("paused, 6 replicas")
			w.paused = true
			w.replicas = 6
			w.playUntilStable()
			w.note("resumed")
			w.paused = false
			w.playUntilStable()
		}},
		{"rolling-frozen-midway", started(rolling, 4, 1, 0), func(w *simulatedDeployment) {
			w.midway("b")
			w.note("frozen, 2 replicas")
			w.frozen = true
			w.replicas = 2
			w.playUntilStable()
			w.note("6 replicas")
			w.replicas = 6
			w.playUntilStable()
			w.note("thawed")
			w.frozen = false
			w.playUntilStable()
		}},
		{"recreate", started(recreate, 3, 0, 0), func(w *simulatedDeployment) {
			w.note("template b")
			w.template = "b"
			w.playUntilStable()
		}},
		{"recreate-scaled", started(recreate, 3, 0, 0), func(w *simulatedDeployment) {
			w.note("template b and 5 replicas, then 2 while the old machines are being deleted")
			w.template, w.replicas = "b", 5
			w.pass()
			w.runSets()
			w.log.WriteString("      " + w.String() + "\n")
			w.replicas = 2
			w.playUntilStable()
		}},
		{"on-delete", started(onDelete, 3, 0, 0), func(w *simulatedDeployment) {
			w.note("template b")
			w.template = "b"
			w.playUntilStable()
			w.note("a machine is deleted by hand")
			w.set("a").machines[1].deleting = true
			w.playUntilStable()
			w.note("5 replicas")
			w.replicas = 5
			w.playUntilStable()
			w.note("2 replicas")
			w.replicas = 2
			w.playUntilStable()
			w.note("all machines are deleted by hand")
			for _, s := range w.sets {
				for _, m := range s.machines {
					m.deleting = true
				}
			}
			w.playUntilStable()
		}},
		{"in-place", started(inPlace, 4, 0, 1), func(w *simulatedDeployment) {
			w.note("template b")
			w.template = "b"
			w.playUntilStable()
		}},
		{"in-place-by-3", started(inPlace, 8, 0, 3), func(w *simulatedDeployment) {
			w.note("template b")
			w.template = "b"
			w.playUntilStable()
		}},
		{"in-place-undone-midway", started(inPlace, 4, 0, 2), func(w *simulatedDeployment) {
			w.inPlaceMidway("b")
			w.note("template a again")
			w.template = "a"
			w.playUntilStable()
		}},
		{"in-place-rolled-over-midway", started(inPlace, 4, 0, 2), func(w *simulatedDeployment) {
			w.inPlaceMidway("b")
			w.note("template c")
			w.template = "c"
			w.playUntilStable()
		}},
		{"in-place-scaled-up-midway", started(inPlace, 4, 0, 2), func(w *simulatedDeployment) {
			w.inPlaceMidway("b")
			w.note("6 replicas")
			w.replicas = 6
			w.playUntilStable()
		}},
		{"in-place-scaled-down-by-marks-midway", started(inPlace, 6, 0, 2), func(w *simulatedDeployment) {
			w.inPlaceMidway("b")
			w.note("2 machines of a are marked for deletion, 3 replicas")
			for _, m := range w.set("a").machines[:2] {
				m.marked = true
			}
			w.replicas = 3
			w.playUntilStable()
		}},
		{"in-place-paused-midway", started(inPlace, 4, 0, 2), func(w *simulatedDeployment) {
			w.inPlaceMidway("b")
			w.note("paused, 5 replicas")
			w.paused, w.replicas = true, 5
			w.playUntilStable()
			w.note("resumed")
			w.paused = false
			w.playUntilStable()
		}},
		{"in-place-frozen-midway", started(inPlace, 4, 0, 2), func(w *simulatedDeployment) {
			w.inPlaceMidway("b")
			w.note("frozen, 2 replicas")
			w.frozen, w.replicas = true, 2
			w.playUntilStable()
			w.note("thawed, 4 replicas")
			w.frozen, w.replicas = false, 4
			w.playUntilStable()
		}},
		{"in-place-rejected-by-the-provider", started(inPlace, 8, 0, 5), func(w *simulatedDeployment) {
			w.note("template b, which the provider rejects")
			w.bad["b"] = true
			w.template = "b"
			w.playUntilStable()
			w.note("9 replicas: only the old revision grows")
			w.replicas = 9
			w.playUntilStable()
			w.note("template c")
			w.template = "c"
			w.playUntilStable()
		}},
		{"in-place-unhealthy-first", started(inPlace, 4, 0, 1), func(w *simulatedDeployment) {
			w.note("the 3rd machine becomes unhealthy, template b")
			w.setState(w.set("a").machines[2], unhealthyState)
			w.template = "b"
			w.playUntilStable()
			w.note("the machine recovers")
			for _, m := range w.set("b").machines {
				w.setState(m, available)
			}
			w.playUntilStable()
		}},
		{"in-place-machines-deleted-while-handed-over", started(inPlace, 5, 0, 3), func(w *simulatedDeployment) {
			w.note("template b, until set a has its order; a machine of a is deleted by hand, and another after it was handed over")
			w.template = "b"
			w.pass()
			w.pass()
			w.decide(w.set("a"))
			w.set("a").machines[4].deleting = true
			w.act(w.set("a"))
			w.set("b").machines[0].deleting = true
			w.log.WriteString("      " + w.String() + "\n")
			w.playUntilStable()
		}},
		{"in-place-by-selection", started(inPlace, 4, 0, 1), func(w *simulatedDeployment) {
			w.note("orchestration Manual, template b")
			w.manual, w.template = true, "b"
			w.playUntilStable()
			w.note("the 3rd machine is selected")
			w.selectMachines("a", 2)
			w.playUntilStable()
			w.note("two more machines are selected at once")
			w.selectMachines("a", 0, 2)
			w.playUntilStable()
			w.note("orchestration Auto")
			w.manual = false
			w.playUntilStable()
		}},
		{"in-place-by-selection-taken-back", started(inPlace, 5, 0, 3), func(w *simulatedDeployment) {
			w.note("orchestration Manual, template b, 3 machines are selected, until the first one was handed over")
			w.manual, w.template = true, "b"
			w.selectMachines("a", 0, 1, 2)
			w.pass()
			w.pass()
			a := w.set("a")
			w.decide(a)
			w.act(a)
			w.log.WriteString("      " + w.String() + "\n")
			w.note("the next machine is deselected")
			a.machines[0].selected = false
			w.playUntilStable()
		}},
		{"in-place-by-selection-scaled-paused-undone", started(inPlace, 4, 0, 2), func(w *simulatedDeployment) {
			w.note("orchestration Manual, template b, 6 replicas")
			w.manual, w.template, w.replicas = true, "b", 6
			w.playUntilStable()
			w.note("paused, and two machines are selected")
			w.paused = true
			w.selectMachines("a", 0, 1)
			w.playUntilStable()
			w.note("resumed")
			w.paused = false
			w.playUntilStable()
			w.note("an old machine is deleted")
			w.set("a").machines[0].deleting = true
			w.playUntilStable()
			w.note("5 replicas")
			w.replicas = 5
			w.playUntilStable()
			w.note("template a again, and all of b are selected")
			w.template = "a"
			for i := range w.set("b").machines {
				w.selectMachines("b", i)
			}
			w.playUntilStable()
		}},
		{"in-place-by-selection-idle-machines-are-free", started(inPlace, 4, 0, 1), func(w *simulatedDeployment) {
			w.note("orchestration Manual; 2 machines become unhealthy, template b; a healthy and an unhealthy machine are selected")
			w.manual, w.template = true, "b"
			w.setState(w.set("a").machines[2], unhealthyState)
			w.setState(w.set("a").machines[3], unhealthyState)
			w.selectMachines("a", 0, 3)
			w.playUntilStable()
			w.note("the machines recover")
			for _, s := range w.sets {
				for _, m := range s.machines {
					if m.state == unhealthyState {
						w.setState(m, available)
					}
				}
			}
			w.playUntilStable()
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := test.start(t)
			test.play(w)
			golden(t, test.name, w.log.String())
		})
	}
}

func started(strategy v1beta1.DeploymentStrategyType, replicas, surge,
	unavailable int32) func(*testing.T) *simulatedDeployment {
	return func(t *testing.T) *simulatedDeployment {
		w := newSimulatedDeployment(t, strategy, replicas, surge, unavailable)
		w.note("%s, %d replicas, maxSurge %d, maxUnavailable %d", strategy, replicas, surge, unavailable)
		w.playUntilStable()
		return w
	}
}

func startedWithClasses(strategy v1beta1.DeploymentStrategyType, replicas, surge,
	unavailable int32) func(*testing.T) *simulatedDeployment {
	return func(t *testing.T) *simulatedDeployment {
		w := newSimulatedDeployment(t, strategy, replicas, surge, unavailable)
		w.classes = map[string]string{"a": "xy", "b": "xz", "c": "xyz"}
		w.note("%s, %d replicas, maxSurge %d, maxUnavailable %d, classes x and y", strategy, replicas, surge, unavailable)
		w.playUntilStable()
		return w
	}
}

func (w *simulatedDeployment) midway(template string) {
	w.note("template %s, after two passes", template)
	w.template = template
	for range 2 {
		w.pass()
		w.runSets()
		w.completeOperations()
	}
	w.log.WriteString("      " + w.String() + "\n")
}

func (w *simulatedDeployment) inPlaceMidway(template string) {
	w.note("template %s, until one machine was handed over", template)
	w.template = template
	w.pass()
	w.pass()
	a := w.set("a")
	w.decide(a)
	w.act(a)
	w.log.WriteString("      " + w.String() + "\n")
}

func (w *simulatedDeployment) selectMachines(set string, machines ...int) {
	for _, i := range machines {
		w.set(set).machines[i].selected = true
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
		t.Errorf("the steps have changed; check them, and run the test with -update if they are right.\ngot:\n%s\nwant:\n%s",
			got, want)
	}
}
