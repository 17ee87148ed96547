package simulation

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

type trail struct {
	orphaned  map[int]time.Time
	listed    *frame
	read      map[*frame]provider.Instance
	givenAway time.Time
}

func (t trail) clone() trail {
	t.orphaned, t.read, t.listed = maps.Clone(t.orphaned), nil, nil
	return t
}

// leak returns an action that creates an instance of this installation without a Machine. change may alter its tags.
func leak(name string, change ...func(*instance)) Action {
	return Action{Name: "leak instance " + name, Do: func(_ context.Context, w *World, _ client.Client) error {
		in := &instance{
			born: w.clock.at, visible: w.clock.at.Add(time.Duration(w.random.IntN(3)) * orphanAge / 2), registered: true,
			Instance: provider.Instance{
				ProviderID: idOf(name), State: provider.StateRunning, NodeName: name, Type: "small", LaunchTime: w.clock.at,
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.9.9.9"}},
				ClusterID: clusterID, MachineUID: types.UID("gone-" + name), MachineKey: namespace + "/" + name,
			},
		}
		for _, f := range change {
			f(in)
		}
		if len(change) > 0 || w.safety.reportOnly {
			w.safety.strangers[in.ProviderID] = in.MachineUID != ""
		}
		w.cloud.instances = append(w.cloud.instances, in)
		return nil
	}}
}

// removeTags removes all tags of an instance. The instance then looks like an instance that a user has created. Its
// Node joins the target cluster.
func removeTags(in *instance) {
	in.ClusterID, in.MachineUID, in.MachineKey, in.registered = "", "", "", false
}

func halfTagged(in *instance) { in.MachineKey = "" }

func ofOtherCluster(in *instance) { in.ClusterID = "another" }

// takeOver returns an action that gives an instance to another installation, after the orphan collection has listed it
// and before it checks the instance again.
func takeOver(name string) Action {
	return Action{
		Name: "give instance " + name + " to another installation",
		Do: func(_ context.Context, w *World, _ client.Client) error {
			if in := w.cloud.byID(idOf(name)); in != nil && in.dying.IsZero() {
				in.ClusterID, in.trail.givenAway = "another", w.clock.at
				w.safety.strangers[in.ProviderID] = true
			}
			return nil
		},
		// Wait until the current reconciliation has listed the instance and will remove it next.
		Condition: func(w *World) bool {
			in := w.cloud.byID(idOf(name))
			return in == nil || !in.dying.IsZero() || w.collecting() && in.trail.listed == w.top() &&
				w.orphanedFor(in) >= max(orphanPeriod, orphanAge)
		},
	}
}

func (w *World) orphanedFor(in *instance) time.Duration {
	if first, seen := in.trail.orphaned[w.top().controller.process.life]; seen {
		return w.clock.Since(first)
	}
	return 0
}

func (w *World) collecting() bool {
	f := w.top()
	return f != nil && f.controller.table.Name == "orphans"
}

// bringUp returns an action that kills and restarts a process. The first lists of the new process lack some of the last
// changes.
func bringUp(process string, late int) Action {
	return Action{Name: fmt.Sprintf("restart the %s, %d changes late", process, late),
		Do: func(_ context.Context, w *World, _ client.Client) error {
			for _, p := range slices.Clone(w.processes) {
				if p.name == process && !p.dead && !p.isFormer {
					p.die()
					p.rewind = late
					return w.restart(p)
				}
			}
			return nil
		}}
}

func standStill(process string, d time.Duration) Action {
	return Action{Name: fmt.Sprintf("the %s sees no machine change for %s", process, d),
		Do: func(_ context.Context, w *World, _ client.Client) error {
			for _, p := range w.processes {
				for _, v := range p.control.views {
					if p.name == process && v.gvk.Kind == "Machine" {
						v.frozenUntil = w.clock.at.Add(d)
					}
				}
			}
			return nil
		}}
}

// leaksOfLate returns actions that start a provider with outdated lists. The provider then receives no changes for a
// long time, so that instances seem to have no Machine.
func leaksOfLate(r *rand.Rand) []Action {
	restart := bringUp(Provider, []int{5, 9, 30}[r.IntN(3)])
	stop := standStill(Provider, orphanAge+4*orphanPeriod)
	both := Action{Name: restart.Name + ", and " +
		stop.Name, Do: func(ctx context.Context, w *World, c client.Client) error {
		if err := restart.Do(ctx, w, c); err != nil {
			return err
		}
		return stop.Do(ctx, w, c)
	}}
	return []Action{scale(int32(3 + r.IntN(2))), both.onceThereIs(3, "instance").after(upTo(r, 30*time.Second)),
		leak("lost-1"), wait(3 * time.Minute)}
}

// leaks returns actions that create orphans while the fleet grows or shrinks.
func leaks(r *rand.Rand) []Action {
	actions := []Action{leak("lost-1"), leak("nobodys", removeTags), leak("theirs", ofOtherCluster),
		leak("half", halfTagged)}
	r.Shuffle(len(actions), func(i, j int) { actions[i], actions[j] = actions[j], actions[i] })
	switch r.IntN(4) {
	case 0:
		actions = append(actions, leak("lost-2"))
	case 1:
		actions = append(actions, takeOver("lost-1"))
	}
	actions = slices.Insert(actions, r.IntN(len(actions)+1), scale(int32(1+r.IntN(4))))
	if r.IntN(2) == 0 {
		actions = append(actions, bringUp(Provider, []int{1, 3, 9, 30}[r.IntN(4)]).onceThereIs(3+r.IntN(2), "instance"))
	}
	return append(actions, wait(orphanPeriod*3))
}

// reportedLeaks creates orphans in an installation that only reports them.
func reportedLeaks(r *rand.Rand) []Action {
	report := Action{Name: "only report orphans", Do: func(_ context.Context, w *World, _ client.Client) error {
		w.safety.reportOnly = true
		return nil
	}}
	return []Action{report, bringUp(Provider, 0), leak("lost-1"), leak("lost-2"), scale(int32(1 + r.IntN(3))),
		wait(orphanPeriod * 4)}
}

// leaksInOutage creates orphans while a cluster is unreachable.
func leaksInOutage(r *rand.Rand) []Action {
	to := r.IntN(2)
	return []Action{
		leak("lost-1").after(time.Duration(r.IntN(30)) * time.Second),
		outage(to, r.IntN(2) == 0).after(time.Duration(r.IntN(50)) * time.Second),
		endOutage(to).after(time.Duration(10+r.IntN(180)) * time.Second), leak("lost-2"), wait(orphanPeriod * 4),
	}
}

// loseMachines returns an action that creates n instances without Machines in one step, as if a control cluster had
// lost a part of its data. If joined is true, one of these instances has a Node.
func loseMachines(n int, joined bool) Action {
	return Action{Name: fmt.Sprintf("lose %d machines", n), Do: func(_ context.Context, w *World, c client.Client) error {
		for i := range n {
			name := fmt.Sprintf("lost-%d", i)
			if err := leak(name).Do(context.Background(), w, c); err != nil {
				return err
			}
			in := w.cloud.byID(idOf(name))
			in.visible, in.registered = w.clock.at, i > 0 || !joined
			w.safety.lostInstances[in.ProviderID] = n >= 3
		}
		return nil
	}}
}

// letGo returns an action in which an administrator checks the orphans of a class and permits their removal.
func letGo(class string) Action {
	return Action{Name: "allow the removal of the orphans of class " + class,
		Do: func(ctx context.Context, w *World, c client.Client) error {
			o := &v1beta1.MachineClass{}
			if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: class}, o); err != nil {
				return err
			}
			changed := o.DeepCopy()
			until := w.clock.at.Add(permission).UTC().Format(time.RFC3339)
			changed.Annotations = map[string]string{v1beta1.AnnotationRemoveOrphansUntil: until}
			return c.Patch(ctx, changed, client.MergeFrom(o))
		}}
}

// permission is how long administrators permit the removal of orphans. It is longer than the removal takes in any run.
const permission = 2 * time.Hour

// permitsRemoval reports whether a class permits the removal of the orphans that were found with its credentials.
func permitsRemoval(class *v1beta1.MachineClass, now time.Time) bool {
	until, err := time.Parse(time.RFC3339, class.Annotations[v1beta1.AnnotationRemoveOrphansUntil])
	return err == nil && now.Before(until)
}

// mayRemoveOrphan reports whether an administrator has permitted the removal of an orphan. The class must be in the
// namespace that the tags of the orphan name. All orphans of the simulation have tags of the same namespace.
func (o *oracle) mayRemoveOrphan(began time.Time) bool {
	return slices.ContainsFunc(believedVersions[*v1beta1.MachineClass](o, "MachineClass"),
		func(versions []*v1beta1.MachineClass) bool {
			return slices.ContainsFunc(versions, func(class *v1beta1.MachineClass) bool {
				return class != nil && permitsRemoval(class, began)
			})
		})
}

// answerBlock lets an administrator permit the removal of orphans after a class has reported for some time that the
// removal is blocked. The result is true if the administrator has acted. In a small fleet, a few orphans can be most of
// the instances if a list still shows deleted instances.
func (w *World) answerBlock(after time.Duration) (bool, error) {
	if len(w.script) > 0 {
		return false, nil
	}
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineClass")) {
		class := o.(*v1beta1.MachineClass)
		blocked := meta.FindStatusCondition(class.Status.Conditions, v1beta1.ConditionOrphanRemovalBlocked)
		if blocked == nil || w.clock.at.Sub(blocked.LastTransitionTime.Time) < after || permitsRemoval(class, w.clock.at) {
			continue
		}
		action := letGo(class.Name)
		w.logf("person: %s", action.Name)
		w.disturbed = w.clock.at
		return true, action.Do(context.Background(), w, w.hand(w.control))
	}
	return false, nil
}

// losses returns actions that cause the loss of Machines: either six Machines are lost at once, or one Machine with a
// Ready Node is lost. In some runs, the provider restarts before an administrator permits the removal.
func losses(r *rand.Rand) []Action {
	n := []int{1, 6}[r.IntN(2)]
	actions := []Action{loseMachines(n, n == 1 || r.IntN(2) == 0), wait(orphanPeriod * time.Duration(4+r.IntN(3)))}
	// This action adds so many machines that less than half of the instances are orphans. A new process does not know
	// that the share was higher before.
	if r.IntN(2) == 0 {
		actions = append(actions, scale(9), wait(orphanPeriod*4))
	}
	if r.IntN(2) == 0 {
		actions = append(actions, bringUp(Provider, []int{0, 3}[r.IntN(2)]), wait(orphanPeriod*4))
	}
	return append(actions, letGo("a"), wait(orphanPeriod*time.Duration(n+3)))
}

func wait(d time.Duration) Action {
	return Action{Name: "wait", MinDelay: d, Do: func(context.Context, *World, client.Client) error { return nil }}
}

func (w *World) strangersLeft() (n int) {
	for _, tagged := range w.safety.strangers {
		if tagged {
			n++
		}
	}
	return n
}

func (w *World) listed(in *instance) {
	if !w.collecting() || w.oracle.machines[in.owner()] != nil {
		return
	}
	in.trail.listed = w.top()
	life := w.top().controller.process.life
	if _, known := in.trail.orphaned[life]; !known {
		if in.trail.orphaned == nil {
			in.trail.orphaned = map[int]time.Time{}
		}
		in.trail.orphaned[life] = w.top().began
	}
}

func (w *World) noteRead(in *instance) {
	if w.collecting() {
		if in.trail.read == nil {
			in.trail.read = map[*frame]provider.Instance{}
		}
		in.trail.read[w.top()] = in.Instance
	}
}

// mayCollect checks I1 and I5 for orphans. Only an old enough instance with tags of this installation and without a
// Machine may be removed. The same process must have listed the instance in two checks, one period apart, and must have
// read the instance afterwards.
func (o *oracle) mayCollect(in *instance) {
	w := o.world
	if !w.collecting() {
		return
	}
	p, began := w.top().controller.process, w.top().began
	report := func(format string, args ...any) {
		o.breach("orphans", "%s removes %s: %s", p.name, in.ProviderID, fmt.Sprintf(format, args...))
	}
	read, isRead := in.trail.read[w.top()]
	namespace, name, _ := strings.Cut(read.MachineKey, "/")
	switch {
	case w.safety.reportOnly && p.began.After(epoch) && p.orphans.Rules.ReportOnly:
		report("this installation only reports orphans")
	case o.machines[in.owner()] != nil:
		report("the instance belongs to machine %s", o.machines[in.owner()].Name)
	case !isRead:
		report("the orphan collection did not read the instance again")
	case read.ClusterID != clusterID || read.MachineUID == "" || namespace == "" || name == "":
		report("the instance belongs to cluster %q, machine %q (%s)", read.ClusterID, read.MachineKey, read.MachineUID)
	case w.clock.Since(in.born) < orphanAge:
		report("the instance is only %s old", w.clock.Since(in.born))
	case began.Sub(in.trail.orphaned[p.life]) < orphanPeriod:
		report("the instance was first seen without a machine at %s", in.trail.orphaned[p.life].Sub(epoch))
	}
	letGo := o.mayRemoveOrphan(began.Add(-p.clock.behind)) || w.forced(in.owner())
	if node := w.node(in.NodeName); !letGo && node != nil && node.Spec.ProviderID == in.ProviderID {
		if health := w.safety.nodes[node.UID]; health.healthy && health.since.Before(began) {
			report("the Node is Ready, and no administrator permitted the removal")
		}
	}
	if w.safety.lostInstances[in.ProviderID] && !letGo {
		report("most instances are orphans, and no administrator permitted the removal")
	}
	for _, t := range []time.Time{p.began, w.safety.links[toControl].restoredAt, w.safety.links[toTarget].restoredAt} {
		if began.Sub(t) < orphanPeriod && t.After(epoch) {
			report("the process has started, or an outage has ended, only at %s", t.Sub(epoch))
		}
	}
}
