package machine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

// TestCrashAtAnyEffectLeadsToTheSameEnd repeats the same test sequence many times, from the creation to the deletion of
// a machine. Each time, another write or call to the cloud is interrupted: the process crashes, or the connection is
// lost. The final state must always be the same.
//
// Rules: create-is-idempotent, provider-id-recorded-first, crash-safe-everywhere, replacement-deletes-first,
// agent-update-crash-safe, boot-data-removed-after-join, absence-needs-two-reads, gone-is-confirmed,
// old-instance-not-taken-for-new.
func TestCrashAtAnyEffectLeadsToTheSameEnd(t *testing.T) {
	t.Parallel()
	replacing := func(w *world) {
		w.class("large", joinsWithToken)
		w.cloud.OnUpdate = func(provider.UpdateRequest) (provider.UpdateResult, error) {
			return provider.UpdateResult{Outcome: provider.UpdateNeedsReplacement, Reason: "of another size"}, nil
		}
	}
	replaced := func(w *world) string {
		w.untilPhase("m", v1beta1.MachineRunning)
		w.update("m", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "large" })
		w.runUntil("m", "the new instance", func() bool {
			m := w.get("m")
			return m.Status.Phase == v1beta1.MachineRunning && m.Status.Applied != nil && m.Status.Applied.ClassName == "large"
		})
		seen := summaryOf(w.get("m"))
		w.effects.next = effectCut{} // Other test cases interrupt the later effects.
		w.delete("m")
		w.untilGone("m")
		return seen
	}
	lives := []struct {
		name string
		kind func(*world)
		// from is the number of the first write or call that is interrupted. Other cases interrupt the writes and calls
		// before this number.
		from  int
		makes int
		// live creates the machine "m", changes it and deletes it. The function returns a summary of the machine's
		// states.
		live func(*world) string
	}{
		{"a full life", func(*world) {}, 1, 1, func(w *world) string {
			w.untilPhase("m", v1beta1.MachineRunning)
			seen := summaryOf(w.get("m"))
			w.delete("m")
			w.untilGone("m")
			return seen
		}},
		{"a full life in a slow cloud", func(w *world) {
			w.cloud.Boot, w.cloud.Shutdown, w.cloud.TagLookupDelay = time.Second, time.Second, time.Second
		}, 1, 1, func(w *world) string {
			w.untilPhase("m", v1beta1.MachineRunning)
			seen := summaryOf(w.get("m"))
			w.delete("m")
			w.untilGone("m")
			return seen
		}},
		{"a full life in a cloud with lagging reads", func(w *world) {
			w.cloud.ReadLag, w.cloud.Boot, w.cloud.Evasive = 5*time.Second, time.Second, true
		}, 1, 1, func(w *world) string {
			w.untilPhase("m", v1beta1.MachineRunning)
			seen := summaryOf(w.get("m"))
			w.delete("m")
			w.untilGone("m")
			return seen
		}},
		{"a full life in a cloud that creates instances in hidden tasks", func(w *world) {
			w.cloud.CreateTask, w.cloud.Settle = 2*time.Minute, 10*time.Second
		}, 1, 1, func(w *world) string {
			w.untilPhase("m", v1beta1.MachineRunning)
			seen := summaryOf(w.get("m"))
			w.delete("m")
			w.untilGone("m")
			return seen
		}},
		{"deleted after the first pass", func(w *world) { w.cloud.TagLookupDelay = 10 * time.Second }, 1, 1,
			func(w *world) string {
				_, _ = w.pass("m")
				w.delete("m")
				w.untilGone("m")
				return ""
			}},
		{"a second attempt", func(w *world) {
			w.cloud.Script("Create", fakecloud.Step{Err: provider.Errorf(provider.DeadlineExceeded, "no answer"), TokenUsed: true})
		}, 4, 1, func(w *world) string {
			w.runUntil("m", "the second attempt", func() bool { return w.get("m").LaunchAttempt() == 2 })
			w.untilPhase("m", v1beta1.MachineRunning)
			w.effects.next = effectCut{} // Other test cases interrupt the later effects.
			seen := summaryOf(w.get("m"))
			w.delete("m")
			w.untilGone("m")
			return seen
		}},
		{"removal of boot data", reportingJoined, 7, 1, func(w *world) string {
			w.runUntil("m", "removed boot data", func() bool {
				m := w.get("m")
				return m.Status.Instance != nil && m.Status.Instance.BootDataRemoved
			})
			for _, in := range w.cloud.LiveInstances() {
				if in.UserData != "" {
					w.t.Error("the status says that the boot data was removed, but the instance has user data")
				}
			}
			w.effects.next = effectCut{} // Other test cases interrupt the later effects.
			w.untilPhase("m", v1beta1.MachineRunning)
			seen := summaryOf(w.get("m"))
			w.delete("m")
			w.untilGone("m")
			return seen
		}},
		{"replaced under the same Machine", replacing, 9, 2, replaced},
		{"replaced in a cloud with lagging reads", func(w *world) {
			replacing(w)
			w.cloud.ReadLag, w.cloud.Shutdown = 5*time.Second, time.Second
		}, 9, 2, replaced},
		{"updated by an agent on the node", func(w *world) {
			w.cloud.OnUpdate = func(provider.UpdateRequest) (provider.UpdateResult, error) {
				return provider.UpdateResult{Outcome: provider.UpdateByAgent}, nil
			}
		}, 9, 1, func(w *world) string {
			w.untilPhase("m", v1beta1.MachineRunning)
			w.update("m", func(m *v1beta1.Machine) { m.Spec.Version = newVersion })
			w.runUntil("m", "the new version", func() bool {
				m, node := w.get("m"), w.getNode(nodeNameOf(w.namespace, "m"))
				if requestOn(node) == (request{version: newVersion}) {
					w.kubeletIs(newVersion, corev1.ConditionTrue)
					w.agentAnswers(v1beta1.UpdateResultSucceeded)
				}
				return m.Status.Phase == v1beta1.MachineRunning && m.Status.Applied != nil &&
					m.Status.Applied.Version == newVersion &&
					!node.Spec.Unschedulable && requestOn(node) == request{}
			})
			seen := summaryOf(w.get("m"))
			w.effects.next = effectCut{} // Other test cases interrupt the later effects.
			w.delete("m")
			w.untilGone("m")
			return seen
		}},
	}
	// A crash before an effect is the same as a crash after the previous effect.
	modes := []effectCut{{losesAnswer: true, dies: true}, {losesAnswer: true}, {losesAnswer: false}}
	// The long sequences have too many writes and calls to interrupt all of them. The test interrupts only every
	// stride-th effect, alternately with the other two modes. The shorter sequences test lost requests.
	strides := map[string]int{
		"a full life in a slow cloud": 2, "a full life in a cloud with lagging reads": 7, "a second attempt": 2,
		"replaced under the same Machine": 3, "replaced in a cloud with lagging reads": 11,
		"updated by an agent on the node": 2,
	}
	for _, life := range lives {
		for turn, mode := range modes {
			from, stride := life.from, 1
			if long := strides[life.name]; long > 0 {
				if !mode.losesAnswer {
					continue
				}
				from, stride = life.from+turn*long/2, long
			}
			t.Run(life.name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				last, expected := 0, ""
				for at := 0; ; at += stride {
					w := newWorld(t, joining, life.kind)
					w.class("small", joinsWithToken)
					uid := w.createMachine("m", func(m *v1beta1.Machine) { m.Finalizers, m.Labels = nil, nil }).UID
					w.effects.next = effectCut{effectNumber: at, losesAnswer: mode.losesAnswer, dies: mode.dies}
					seen := life.live(w)
					if at == 0 {
						expected, at = seen, from-stride
						continue
					}
					if w.effects.struck == "" {
						break
					}
					if seen != expected {
						t.Errorf("interrupted at effect %d (%s), the life ends with\n%s, want\n%s", at, w.effects.struck, seen, expected)
					}
					if n := w.cloud.CreatedCount(uid); n > life.makes {
						t.Errorf("interrupted at effect %d (%s): %d instances were created", at, w.effects.struck, n)
					}
					w.wantNothingLeft("m")
					if t.Failed() {
						t.Fatalf("interrupted at effect %d: %s; all: %q", at, w.effects.struck, w.effects.since())
					}
					last = at
				}
				t.Logf("interrupted up to effect %d", last)
			})
		}
	}
}
