package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/test/invariants"
)

// Disruptions is the group of scenarios that replace or change machines under disruption budgets, without scaling down.
const Disruptions Group = "disruption"

// oldAge is the age of the machines that must expire, and expireAfter the maximum age. A run is so short that the
// replacements do not reach the maximum age.
const (
	oldAge      = 25 * time.Hour
	expireAfter = 24 * time.Hour
)

func disruptionScenarios() []Scenario {
	pace := setBudget(budget("pace", "1"))
	inPlace := fleet(3, "a", ofType(v1beta1.StrategyInPlace), ofFirstVersion)
	return []Scenario{
		{Name: "budgets-overlap", Group: Disruptions, Base: fleet(2, "a", strategy(1, 0)), InitialActions: []Action{
			create(fleet(2, "a", withName("api"), strategy(1, 1))), create(fleet(1, "a", withName("jobs"), strategy(1, 0))),
			setBudget(budget("all", "2")), setBudget(budget("front", "30%", forApps("web", "api"))),
		}, Script: overlapping},
		{Name: "fleet-paused", Group: Disruptions, Variants: 2, Base: fleet(2, "a", strategy(1, 0)), InitialActions: []Action{pace},
			Script: pausing},
		{Name: "scale-down-of-the-exchanged", Group: Disruptions, Variants: 2, Base: fleet(3, "a", strategy(1, 0)),
			InitialActions: []Action{pace}, Script: scalingDuringReplacement},
		{Name: "budget-windows", Group: Disruptions, Base: fleet(2, "a", strategy(1, 1)),
			InitialActions: []Action{setBudget(budget("always", "2"))}, Script: inWindows},
		{Name: "budget-of-the-broken", Group: Disruptions, Controllers: Health, Base: fleet(4, "a", replacedAtOnce),
			InitialActions: []Action{create(fleet(2, "a", withName("api"), replacedAtOnce, strategy(0, 1))), pace,
				checkOf("100%", deployment, "api")},
			Age: oldAge, Script: breaking},
		{Name: "exchange", Group: Disruptions, Variants: 2, Base: fleet(2, "a", strategy(1, 0)),
			InitialActions: []Action{pace, setBudget(budget("others", "0", forReasons(v1beta1.DisruptionRollout)))},
			Age:            oldAge, Script: exchanging(deployment)},
		{Name: "exchange-without-surge", Group: Disruptions, Variants: 2, Base: fleet(2, "a", strategy(0, 1)),
			InitialActions: []Action{pace}, Age: oldAge, Script: exchanging(deployment)},
		{Name: "exchange-in-a-set", Group: Disruptions, Variants: 2, InitialActions: []Action{createSet("solo", 2, "a"), pace},
			Age: oldAge, Script: exchanging("solo")},
		{Name: "budget-in-place", Group: Disruptions, Variants: 2, Base: inPlace, InitialActions: []Action{pace},
			Script: updatingPaused},
	}
}

// overlapping returns actions that roll out three deployments at the same time, under two budgets that share machines.
// Meanwhile, one budget becomes smaller and the other one is deleted.
func overlapping(r *rand.Rand) []Action {
	actions := []Action{rollNamed(deployment), rollNamed("api"), rollNamed("jobs"),
		setBudget(budget("all", "1")).after(upTo(r, 40*time.Second)), dropBudget("front").after(upTo(r, time.Minute))}
	if r.IntN(2) == 0 {
		slices.Reverse(actions[3:])
	}
	return actions
}

// pausing returns actions that pause a fleet before or during a rollout. During the pause, the fleet is scaled and a
// machine is deleted.
func pausing(r *rand.Rand) []Action {
	change := []Action{scale(int32(1 + 2*r.IntN(2))), deleteMachine(r.IntN(3)).after(upTo(r, 20*time.Second))}
	if r.IntN(2) == 0 {
		change = change[:1]
	}
	if r.IntN(2) == 0 {
		return slices.Concat([]Action{setBudget(paused()), roll("b").after(5 * time.Second)}, change,
			[]Action{dropBudget(disruption.PauseBudget).waitFor("the fleet is scaled", isScaled)})
	}
	return slices.Concat([]Action{roll("b"), setBudget(paused()).after(upTo(r, 40*time.Second))}, change,
		[]Action{dropBudget(disruption.PauseBudget).waitFor("the fleet is scaled", isScaled)})
}

// scalingDuringReplacement scales down a fleet with a machine that must be replaced. The fleet is paused before or
// during the replacement, until it has the requested size.
func scalingDuringReplacement(r *rand.Rand) []Action {
	begin := []Action{setBudget(paused()), replace(r.IntN(3)).after(5 * time.Second)}
	if r.IntN(2) == 0 {
		begin = []Action{replace(r.IntN(3)), setBudget(paused()).after(upTo(r, 40*time.Second))}
	}
	return append(begin, scale(int32(1+r.IntN(2))).after(upTo(r, 20*time.Second)),
		dropBudget(disruption.PauseBudget).waitFor("there are no more machines than replicas and replacements", func(w *World) bool {
			fleets, _ := w.fleets()
			live, most := 0, fleets[0].wanted
			for _, m := range w.machines() {
				if m.DeletionTimestamp.IsZero() {
					live++
				}
			}
			for _, set := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineSet")) {
				surge, _ := strconv.Atoi(set.GetAnnotations()[v1beta1.AnnotationExchangeSurge])
				most += surge
			}
			return live <= most
		}))
}

// inWindows rolls out a fleet only inside, or only outside, some windows of a few minutes.
func inWindows(r *rand.Rand) []Action {
	apply := []v1beta1.DisruptionApply{v1beta1.ApplyInside, v1beta1.ApplyOutside}[r.IntN(2)]
	closed := budget("closed", "0", func(b *v1beta1.MachineDisruptionBudget) {
		b.Spec.Apply = apply
		b.Spec.Windows = []v1beta1.DisruptionWindow{{Schedule: "*/4 * * * *",
			Duration: metav1.Duration{Duration: 2 * time.Minute}}}
	})
	return []Action{setBudget(closed), roll("b").after(upTo(r, 4*time.Minute))}
}

// breaking returns actions that make half of the machines of two deployments unhealthy during a pause. At the same
// time, other machines become outdated or too old, must be replaced, or must not be disrupted. Most unhealthy machines
// recover.
func breaking(r *rand.Rand) []Action {
	actions := []Action{setBudget(paused())}
	for range 3 {
		actions = append(actions, silence(r.IntN(6)).after(upTo(r, 20*time.Second)))
	}
	more := []Action{rollNamed("api"), expire(deployment), replace(r.IntN(6)), exempt(r.IntN(6), 13*time.Minute)}
	r.Shuffle(len(more), func(i, j int) { more[i], more[j] = more[j], more[i] })
	return append(actions, more[0].after(upTo(r, healthTimeout)), more[1],
		revive(1).after(healthTimeout+upTo(r, time.Minute)),
		dropBudget(disruption.PauseBudget).after(longUnhealthy+upTo(r, 2*time.Minute)))
}

// exchanging returns a script in which the machines of a fleet are replaced because of their age or a request. One of
// these machines must not be disrupted during a part of the script.
func exchanging(of string) func(*rand.Rand) []Action {
	return func(r *rand.Rand) []Action {
		actions := []Action{exempt(r.IntN(2), 4*time.Minute)}
		if r.IntN(2) == 0 {
			actions = append(actions, replace(r.IntN(2)))
		}
		return append(actions, expire(of).after(upTo(r, 20*time.Second)))
	}
}

// updatingPaused pauses an update in place at an early moment: the manager has just requested that a set hands over
// machines. The update continues after the fleet was scaled.
func updatingPaused(r *rand.Rand) []Action {
	return []Action{upgrade("v1.36.4"), setBudget(paused()).waitFor("a set has an order", func(w *World) bool {
		return upgraded(w) || slices.ContainsFunc(w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineSet")),
			func(o client.Object) bool { return o.GetAnnotations()[v1beta1.AnnotationMoveTo] != "" })
	}), scale(int32(2 + 2*r.IntN(2))), dropBudget(disruption.PauseBudget).waitFor("the fleet is scaled", isScaled)}
}

func budget(name, most string, change ...func(*v1beta1.MachineDisruptionBudget)) *v1beta1.MachineDisruptionBudget {
	b := &v1beta1.MachineDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	b.Spec.MaxDisrupted = intstr.Parse(most)
	for _, f := range change {
		f(b)
	}
	return b
}

func paused() *v1beta1.MachineDisruptionBudget { return budget(disruption.PauseBudget, "0") }

func forApps(apps ...string) func(*v1beta1.MachineDisruptionBudget) {
	return func(b *v1beta1.MachineDisruptionBudget) {
		b.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app",
			Operator: metav1.LabelSelectorOpIn, Values: apps}}
	}
}

func forReasons(reasons ...v1beta1.DisruptionReason) func(*v1beta1.MachineDisruptionBudget) {
	return func(b *v1beta1.MachineDisruptionBudget) { b.Spec.Reasons = reasons }
}

func setBudget(b *v1beta1.MachineDisruptionBudget) Action {
	return Action{Name: fmt.Sprintf("budget %s allows %s", b.Name, b.Spec.MaxDisrupted.String()),
		Do: func(ctx context.Context, _ *World, c client.Client) error {
			found := &v1beta1.MachineDisruptionBudget{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(b), found); err != nil {
				if client.IgnoreNotFound(err) != nil {
					return err
				}
				return c.Create(ctx, b.DeepCopy())
			}
			found.Spec = *b.Spec.DeepCopy()
			return c.Update(ctx, found)
		}}
}

func dropBudget(name string) Action {
	return Action{Name: "delete budget " + name, Do: func(ctx context.Context, _ *World, c client.Client) error {
		return client.IgnoreNotFound(c.Delete(ctx, budget(name, "0")))
	}}
}

func (d Action) waitFor(what string, is func(*World) bool) Action {
	d.Name += " once " + what
	d.Condition = is
	return d
}

// isScaled reports whether the deployment has the requested number of machines, all running. If a rollout creates new
// machines before it deletes old ones, there may be more machines than requested.
func isScaled(w *World) bool {
	fleets, _ := w.fleets()
	f, live, surge := fleets[0], 0, 0
	for _, m := range w.machines() {
		if m.Status.Phase != v1beta1.MachineRunning || !m.DeletionTimestamp.IsZero() {
			return false
		}
		live++
		if f.hasClass(classNameOf(m)) && m.Spec.Version == f.template.Spec.Version {
			surge++
		}
	}
	most := invariants.BoundsOfDeployment(f.deployment).MaxLive
	return live >= f.wanted && live <= min(f.wanted+surge, most)
}

func withName(name string) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) {
		d.Name = name
		d.Spec.Selector.MatchLabels = map[string]string{"app": name}
		d.Spec.Template.ObjectMeta.Labels = map[string]string{"app": name}
	}
}

// replacedAtOnce lets a deployment replace all its broken machines at the same time.
func replacedAtOnce(d *v1beta1.MachineDeployment) {
	all := intstr.FromString("100%")
	d.Spec.Remediation.MaxInFlight = &all
}

func rollNamed(name string) Action {
	return editNamed(name, fmt.Sprintf("roll %s to class b", name), func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.Spec.ClassRef = &v1beta1.LocalRef{Name: "b"}
	})
}

func createSet(name string, replicas int32, class string) Action {
	return Action{Name: "create set " + name, Do: func(ctx context.Context, _ *World, c client.Client) error {
		d := fleet(replicas, class, withName(name))
		set := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		set.Spec.Replicas, set.Spec.Selector, set.Spec.Template = d.Spec.Replicas, d.Spec.Selector, d.Spec.Template
		return c.Create(ctx, set)
	}}
}

func expire(name string) Action {
	after := &metav1.Duration{Duration: expireAfter}
	return Action{Name: fmt.Sprintf("machines of %s expire after %s", name, expireAfter),
		Do: func(ctx context.Context, w *World, c client.Client) error {
			set := &v1beta1.MachineSet{}
			if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, set); err == nil {
				before := set.DeepCopy()
				set.Spec.Template.Spec.ExpireAfter = after
				return c.Patch(ctx, set, client.MergeFrom(before))
			}
			return editNamed(name, "", func(d *v1beta1.MachineDeployment) {
				d.Spec.Template.Spec.ExpireAfter = after
			}).Do(ctx, w, c)
		}}
}

func replace(i int) Action {
	return annotateOne("replace a machine", i, v1beta1.AnnotationReplace, func(*World) string { return "" })
}

func exempt(i int, d time.Duration) Action {
	return annotateOne(fmt.Sprintf("do not disrupt a machine for %s", d), i, v1beta1.AnnotationDoNotDisrupt,
		func(w *World) string { return w.clock.at.Add(d).UTC().Format(time.RFC3339) })
}

func annotateOne(name string, i int, key string, value func(*World) string) Action {
	return Action{Name: name, Do: func(ctx context.Context, w *World, c client.Client) error {
		machines := w.machines()
		if len(machines) == 0 {
			return nil
		}
		m := machines[i%len(machines)]
		w.logf("the machine is %s", m.Name)
		changed := m.DeepCopy()
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, key, value(w))
		return client.IgnoreNotFound(c.Patch(ctx, changed, client.MergeFrom(m)))
	}}
}

func (w *World) disruptionMissing(fleets []*askedFleet) (missing []string) {
	for _, m := range w.machines() {
		f := fleetOf(fleets, metav1.GetControllerOfNoCopy(m))
		if annotated(m, v1beta1.AnnotationReplace) {
			missing = append(missing, fmt.Sprintf("machine %s is marked for replacement", m.Name))
		}
		if f != nil && f.template.Spec.ExpireAfter != nil &&
			w.clock.Since(m.CreationTimestamp.Time) > f.template.Spec.ExpireAfter.Duration {
			missing = append(missing, fmt.Sprintf("machine %s is too old", m.Name))
		}
	}
	for _, p := range w.processes {
		if p.ledger == nil || p.dead || p.isFormer {
			continue
		}
		for _, who := range p.ledger.WaitingAskers(namespace) {
			missing = append(missing, fmt.Sprintf("%s waits for a disruption budget", who))
		}
	}
	return missing
}
