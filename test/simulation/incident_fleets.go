package simulation

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

func lostFleets() []Scenario {
	web := app{name: "web", kind: ReplicaSet, replicas: 3, minAvailable: 2, grace: 20, slow: true}
	stubborn := app{name: "web", kind: ReplicaSet, replicas: 2, minAvailable: 2, grace: 30, slow: true}
	return []Scenario{
		{Name: "rollout-never-joins", Group: Incidents,
			Base: fleet(3, "a", strategy(surgeOfSilence, 0), joinsWithin(impatience)), Script: inOrder(
				[]Action{bootAtOnce(), trouble("image b does not join", func(t *cloudProblems) { t.silentImage = "b" }), roll("b")},
				lasting(6), []Action{roll("a"), wait(time.Minute)}), MayDiffer: anyEnd},
		{Name: "restart-in-outage", Group: Incidents, Controllers: Orphans, Base: fleet(4, "a"), Age: 10 * time.Minute,
			Script: restartsInOutage},
		{Name: "finalizer-stripped", Group: Incidents, Controllers: Orphans, Base: fleet(3, "a"), Age: 10 * time.Minute,
			Script: func(r *rand.Rand) []Action {
				return []Action{removeWithoutFinalizers(r.IntN(3)), wait(9 * orphanPeriod), letGo("a"), wait(4 * orphanPeriod)}
			}},
		{Name: "delete-while-draining", Group: Incidents, Base: fleet(2, "a", drained), Apps: []app{web},
			Script: func(r *rand.Rand) []Action {
				// The deletion of a machine without pods may already have finished.
				return []Action{deleteMachine(r.IntN(2)), remove().waitFor("a machine drains, or is gone", func(w *World) bool {
					goes := func(m *v1beta1.Machine) bool { return !machinestate.IsLive(m) }
					return draining(w) || !slices.ContainsFunc(w.machines(), goes)
				})}
			}},
		{Name: "nowhere-to-go", Group: Incidents, Base: fleet(2, "a", drained), Apps: []app{web},
			Script: func(r *rand.Rand) []Action {
				return []Action{[]Action{scale(0), remove()}[r.IntN(2)]}
			}, Variants: 2},
		{Name: "old-fleet-drained", Group: Incidents, Base: fleet(1, "a", drained), Age: oldAge, Apps: []app{stubborn},
			Script: inOrder([]Action{deleteMachine(0)})},
	}
}

// restartsInOutage stops the provider while the control cluster is unreachable. The provider's first lists lack the
// last changes, including new machines.
func restartsInOutage(r *rand.Rand) []Action {
	actions := []Action{outage(toControl, r.IntN(2) == 0),
		endOutage(toControl).after(20*time.Second + upTo(r, 4*time.Minute)),
		bringUp(Provider, []int{3, 9, 30}[r.IntN(3)])}
	if r.IntN(2) == 0 {
		actions = append(actions, standStill(Provider, 4*orphanPeriod))
	}
	return append(actions, wait(10*orphanPeriod))
}

// removeWithoutFinalizers returns an action that removes the i-th machine with its finalizers, so that no controller
// deletes its instance.
func removeWithoutFinalizers(i int) Action {
	const name = "remove a machine without its finalizers"
	return Action{Name: name, Do: func(ctx context.Context, w *World, c client.Client) error {
		machines := w.machines()
		if len(machines) == 0 {
			return nil
		}
		m := machines[i%len(machines)]
		w.logf("the machine is %s", m.Name)
		if w.cloud.troubles.strippedMachines == nil {
			w.cloud.troubles.strippedMachines = map[uid]bool{}
		}
		w.cloud.troubles.strippedMachines[m.UID] = true
		bare := m.DeepCopy()
		bare.Finalizers = nil
		if err := c.Patch(ctx, bare, client.MergeFrom(m)); err != nil {
			return client.IgnoreNotFound(err)
		}
		return client.IgnoreNotFound(c.Delete(ctx, bare))
	}}
}

// surgeOfSilence is the value of maxSurge for a fleet whose new kubelets never register.
const surgeOfSilence = 3

// mayGoOnFailing checks the number of instances that were created with an image whose kubelets never register. At
// first, a rollout may create maxSurge instances with the image. After each join timeout, one more instance may replace
// the failed one. A former leader may add two instances: one that it was creating, and one that it was replacing.
func (o *oracle) mayGoOnFailing() {
	t := &o.world.cloud.troubles
	if t.madeSilent == 0 {
		return
	}
	d := o.world.clock.Since(t.silentSince)
	// Creation times are whole seconds, so a machine may seem up to a second older than it is.
	if most := surgeOfSilence + 2 + int((d+time.Second)/impatience); t.madeSilent > most {
		o.breach("stampede", "%d instances of image %s were created in %s, and none has joined: want at most %d",
			t.madeSilent, t.silentImage, d, most)
	}
}

func (o *oracle) stripped(m *v1beta1.Machine) bool {
	return o.world.cloud.troubles.strippedMachines[m.UID]
}
