package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

const (
	// HealthChecks is the group of scenarios with silent kubelets and unreachable clusters.
	HealthChecks Group = "health"
	// Safety is the group of scenarios with objects that must not be touched or created: orphans, frozen fleets, marked
	// machines, and certificates.
	Safety Group = "safety"
)

func safetyScenarios() []Scenario {
	impatient := func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.Spec.Timeouts.Creation = &metav1.Duration{Duration: 8 * time.Minute}
	}
	return append(refusedCredentialScenarios(impatient), []Scenario{
		{Name: "remediate", Group: HealthChecks, Controllers: AllControllers, Base: fleet(6, "a"), Script: silences},
		{Name: "clocks-differ", Group: HealthChecks, Controllers: Health, Base: fleet(6, "a"), Script: differingClocks},
		{Name: "too-many-unhealthy", Group: HealthChecks, Controllers: Health, Base: fleet(6, "a"), Script: tooMany},
		{Name: "unhealthy-range", Group: HealthChecks, Controllers: Health, Base: fleet(6, "a"), Script: ranges},
		{Name: "machine-condition", Group: HealthChecks, Controllers: Health, Base: fleet(6, "a"), Script: machineConditions},
		{Name: "readiness-gates", Group: HealthChecks, Controllers: Health, Base: fleet(3, "a", gated), Script: gates},
		{Name: "meltdown", Group: HealthChecks, Controllers: Health, Base: fleet(6, "a"), Script: meltdowns},
		{Name: "target-outage", Group: HealthChecks, Controllers: Health | OutdatedTaints, Base: fleet(4, "a"),
			Script: outages(toTarget)},
		{Name: "control-outage", Group: HealthChecks, Controllers: Health | OutdatedTaints, Base: fleet(4, "a"),
			Script: outages(toControl)},
		{Name: "join-in-target-outage", Group: HealthChecks, Controllers: Health, Script: inOrder([]Action{bootAtOnce(),
			create(fleet(1, "a", impatient)), delayJoins().onceThereIs(1, "instance"), outage(toTarget, true).after(2 * time.Minute),
			endOutage(toTarget).after(4 * time.Minute), wait(5 * time.Minute), revive(0)})},
		{Name: "change-in-target-outage", Group: HealthChecks, Controllers: AllControllers,
			Base: fleet(2, "with-token", impatient), Script: changesInOutage(toTarget)},
		{Name: "late-in-target-outage", Group: HealthChecks, Controllers: AllControllers,
			Base: fleet(2, "with-token", impatient), Script: lateInOutage, Variants: 3},
		{Name: "change-in-control-outage", Group: HealthChecks, Controllers: AllControllers,
			Base: fleet(2, "with-token", impatient), Script: changesInOutage(toControl)},

		{Name: "orphans", Group: Safety, Controllers: Orphans, Base: fleet(2, "a"), Script: leaks},
		{Name: "orphans-seen-late", Group: Safety, Controllers: Orphans, Base: fleet(2, "a"), Script: leaksOfLate},
		{Name: "orphans-reported", Group: Safety, Controllers: Orphans, Base: fleet(2, "a"), Script: reportedLeaks},
		{Name: "orphans-in-outage", Group: Safety, Controllers: Orphans, Base: fleet(2, "a"), Script: leaksInOutage},
		{Name: "machines-lost", Group: Safety, Controllers: Orphans, Base: fleet(3, "a"), Script: losses},
		{Name: "overshoot", Group: Safety, Controllers: Overshoot | Health, Base: fleet(2, "a"), Script: intrusions,
			MayDiffer: adoptedOrNot},
		{Name: "freeze", Group: Safety, Controllers: Overshoot | Health, Base: fleet(3, "a"), Script: freezing},
		{Name: "marks", Group: Safety, Controllers: OutdatedTaints | Overshoot, Base: fleet(3, "a"), Script: rollouts},
		{Name: "certificates", Group: Safety, Controllers: Approval | Orphans, Base: fleet(2, "with-token"),
			Script: forgeries, MayDiffer: withoutCondition("machine", v1beta1.ConditionCertificateApproved)},
	}...)
}

func silence(i int) Action {
	return Action{Name: "a kubelet becomes silent", Do: func(_ context.Context, w *World, _ client.Client) error {
		var candidates []*instance
		for _, in := range w.recordedInstances() {
			if node := w.node(in.NodeName); node != nil && node.Spec.ProviderID == in.ProviderID && !in.hung &&
				in.dying.IsZero() && readiness(node) == corev1.ConditionTrue {
				candidates = append(candidates, in)
			}
		}
		if len(candidates) == 0 {
			return nil
		}
		in := candidates[i%len(candidates)]
		w.logf("the kubelet is on %s of %s", in.ProviderID, in.MachineKey)
		in.hung = true
		return nil
	}}
}

func revive(but int) Action {
	return Action{Name: fmt.Sprintf("kubelets report again, except %d", but),
		Do: func(_ context.Context, w *World, _ client.Client) error {
			left := but // Copies of the world run this action, too.
			for _, in := range w.cloud.instances {
				if in.hung && left > 0 {
					left--
				} else {
					in.hung = false
				}
			}
			return nil
		}}
}

// check returns an action that creates a MachineHealthCheck. Except for its limit, it equals the built-in policy, and
// also names the condition gpuHealthy. The limit is a value of maxUnhealthy, or of unhealthyRange.
func check(limit string) Action { return checkOf(limit, deployment) }

func checkOf(limit string, apps ...string) Action {
	return Action{Name: "create a health check with the limit " + limit,
		Do: func(ctx context.Context, _ *World, c client.Client) error {
			most := intstr.Parse(limit)
			o := &v1beta1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "check"}}
			o.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app",
				Operator: metav1.LabelSelectorOpIn, Values: apps}}
			if strings.HasPrefix(limit, "[") {
				o.Spec.UnhealthyRange, most = limit, intstr.FromString(v1beta1.DefaultMaxUnhealthy)
			}
			o.Spec.MaxUnhealthy = &most
			o.Spec.UnhealthyMachineConditions = []v1beta1.UnhealthyMachineCondition{{Type: gpuHealthy,
				Status: metav1.ConditionFalse, Timeout: metav1.Duration{Duration: healthTimeout}}}
			for _, status := range []corev1.ConditionStatus{corev1.ConditionUnknown, corev1.ConditionFalse} {
				o.Spec.UnhealthyNodeConditions = append(o.Spec.UnhealthyNodeConditions, v1beta1.UnhealthyNodeCondition{
					Type: corev1.NodeReady, Status: status, Timeout: metav1.Duration{Duration: healthTimeout},
				})
			}
			return c.Create(ctx, o)
		}}
}

// skew returns an action that restarts a process on a host with a wrong clock. The clock stays wrong. A clock never
// jumps forward while a process runs, because the process measures durations with a monotonic clock.
func skew(process string, ahead time.Duration) Action {
	return Action{Name: fmt.Sprintf("restart the %s on a host whose clock is %s ahead", process, ahead),
		Do: func(ctx context.Context, w *World, c client.Client) error {
			for _, p := range w.processes {
				if p.name == process {
					p.clock.behind = -ahead
				}
			}
			return bringUp(process, 0).Do(ctx, w, c)
		}}
}

// differingClocks returns the actions of the function silences, and sets a wrong clock. The clock of one process is
// ahead or behind by more than the health timeout. The clock is wrong from the beginning, or after a node has become
// silent.
func differingClocks(r *rand.Rand) []Action {
	off := skew([]string{Manager, Provider}[r.IntN(2)], []time.Duration{10 * time.Minute, -10 * time.Minute}[r.IntN(2)])
	actions := silences(r)
	if r.IntN(2) == 0 {
		return slices.Insert(actions, 1, off)
	}
	return slices.Insert(actions, 1+r.IntN(len(actions)), off.after(upTo(r, 3*time.Minute)))
}

func upTo(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most))).Truncate(time.Second)
}

func silences(r *rand.Rand) []Action {
	actions := []Action{stopUsers()}
	if r.IntN(2) == 0 {
		actions = append(actions, check(v1beta1.DefaultMaxUnhealthy))
	}
	actions = append(actions, silence(r.IntN(6)))
	if r.IntN(2) == 0 {
		actions = append(actions, silence(r.IntN(6)).after(upTo(r, 6*time.Minute)))
	}
	switch r.IntN(4) {
	case 0:
		actions = append(actions, revive(0).after(upTo(r, 7*time.Minute)))
	case 1: // The kubelet reports again just when its timeout ends.
		actions = append(actions, revive(0).after(healthTimeout))
	}
	return actions
}

// tooMany returns actions that silence more kubelets than maxUnhealthy allows, for longer than the health timeout. Then
// some of the silent kubelets continue to report.
func tooMany(r *rand.Rand) []Action {
	actions := []Action{stopUsers()}
	if r.IntN(2) == 0 {
		actions = append(actions, check(v1beta1.DefaultMaxUnhealthy))
	}
	for range 3 {
		actions = append(actions, silence(r.IntN(6)).after(upTo(r, 30*time.Second)))
	}
	return append(actions, revive(r.IntN(2)).after(healthTimeout+upTo(r, 5*time.Minute)))
}

// ranges returns actions that silence fewer kubelets than the range of a health check, as many, or more.
func ranges(r *rand.Rand) []Action {
	actions := []Action{stopUsers(), check([]string{"[2-2]", "[2-3]", "[1-2]"}[r.IntN(3)])}
	for range 1 + r.IntN(3) {
		actions = append(actions, silence(r.IntN(6)).after(upTo(r, 30*time.Second)))
	}
	// A silent machine may be left that is not replaced, because it is the only one.
	return append(actions, revive(0).after(healthTimeout+upTo(r, 5*time.Minute)))
}

// setGPU returns an action in which another controller reports that the GPU of a running machine is broken, or that all
// GPUs work.
func setGPU(i int, status metav1.ConditionStatus) Action {
	return Action{Name: "a controller reports that a GPU works: " + string(status),
		Do: func(ctx context.Context, w *World, c client.Client) error {
			var chosen []*v1beta1.Machine
			for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("Machine")) {
				m := o.(*v1beta1.Machine)
				if m.Status.Phase == v1beta1.MachineRunning && m.DeletionTimestamp.IsZero() {
					chosen = append(chosen, m)
				}
			}
			if status == metav1.ConditionFalse && len(chosen) > 0 {
				chosen = chosen[i%len(chosen):][:1]
			}
			for _, m := range chosen {
				changed := m.DeepCopy()
				meta.SetStatusCondition(&changed.Status.Conditions, metav1.Condition{Type: gpuHealthy, Status: status,
					Reason: "Checked", LastTransitionTime: metav1.NewTime(w.clock.at.Truncate(time.Second))})
				err := c.Status().Patch(ctx, changed, client.MergeFromWithOptions(m, client.MergeFromWithOptimisticLock{}))
				if client.IgnoreNotFound(err) != nil {
					return err
				}
			}
			return nil
		}}
}

// machineConditions returns actions in which another controller reports a broken GPU. In some runs, the GPU recovers,
// most nodes become silent, or the target cluster is unreachable for a while.
func machineConditions(r *rand.Rand) []Action {
	actions := []Action{stopUsers(), check(v1beta1.DefaultMaxUnhealthy), setGPU(r.IntN(6), metav1.ConditionFalse)}
	switch r.IntN(4) {
	case 0:
		actions = append(actions, setGPU(0, metav1.ConditionTrue).after(upTo(r, healthTimeout+2*time.Minute)))
	case 1:
		for range 4 {
			actions = append(actions, silence(r.IntN(6)).after(upTo(r, 2*time.Second)))
		}
		actions = append(actions, revive(0).after(healthKnownAfter+upTo(r, 9*time.Minute)))
	case 2:
		actions = append(actions, outage(toTarget, true).after(upTo(r, time.Minute)),
			endOutage(toTarget).after(upTo(r, 12*time.Minute)), revive(0).after(upTo(r, 90*time.Second)))
	}
	return actions
}

// networkReady is a condition that a network plugin sets on Nodes.
const networkReady corev1.NodeConditionType = "NetworkReady"

func gated(d *v1beta1.MachineDeployment) {
	d.Spec.Template.Spec.Node.ReadinessGates = []v1beta1.NodeReadinessGate{{ConditionType: networkReady}}
}

func (w *World) networkCondition(ready corev1.ConditionStatus) corev1.NodeCondition {
	now := metav1.NewTime(w.clock.at.Truncate(time.Second))
	c := corev1.NodeCondition{Type: networkReady, Status: corev1.ConditionFalse, LastTransitionTime: now}
	if ready == corev1.ConditionTrue && !w.cloud.troubles.networkDown {
		c.Status = corev1.ConditionTrue
	}
	return c
}

// setNetwork returns an action in which the network of all Ready Nodes, and of all later ones, works or does not work.
func setNetwork(works bool) Action {
	return Action{Name: fmt.Sprintf("the network works: %t", works),
		Do: func(ctx context.Context, w *World, _ client.Client) error {
			if works {
				for _, m := range w.machines() {
					w.oracle.mayBeReady(m)
				}
			}
			w.cloud.troubles.networkDown = !works
			for _, o := range w.target.Snapshot(nodeKind) {
				node := o.(*corev1.Node)
				changed := node.DeepCopy()
				i := slices.IndexFunc(changed.Status.Conditions, func(c corev1.NodeCondition) bool {
					return c.Type == networkReady
				})
				if i < 0 || readiness(node) != corev1.ConditionTrue {
					continue
				}
				changed.Status.Conditions[i] = w.networkCondition(corev1.ConditionTrue)
				err := w.kubelet().Status().Patch(ctx, changed, client.MergeFrom(node))
				if client.IgnoreNotFound(err) != nil {
					return err
				}
			}
			return nil
		}}
}

// gates returns actions in which the network fails for longer than the health timeout, while the fleet has readiness
// gates. In some runs, the fleet gets new machines at that time.
func gates(r *rand.Rand) []Action {
	actions := []Action{stopUsers(), setNetwork(false)}
	if r.IntN(2) == 0 {
		actions = append(actions, scale(5).after(upTo(r, time.Minute)))
	}
	return append(actions, setNetwork(true).after(healthTimeout+upTo(r, 5*time.Minute)))
}

// meltdowns returns actions that silence most kubelets for a while. In some runs, one of them remains silent.
func meltdowns(r *rand.Rand) []Action {
	actions := []Action{stopUsers(), check("100%")}
	for range 4 + r.IntN(3) {
		actions = append(actions, silence(r.IntN(6)).after(upTo(r, 2*time.Second)))
	}
	return append(actions, revive(r.IntN(2)).after(healthKnownAfter+upTo(r, 9*time.Minute)))
}

// outages returns a script that makes a cluster unreachable for a while. In some runs, the kubelets report again only
// some time later.
func outages(to int) func(*rand.Rand) []Action {
	return func(r *rand.Rand) []Action {
		actions := []Action{stopUsers()}
		if r.IntN(2) == 0 {
			actions = append(actions, check("100%"))
		}
		silent := r.IntN(3)
		comesBack := silent > 1 || r.IntN(3) > 0 // Two silent kubelets exceed the allowed number of unhealthy machines.
		lost := []Action{outage(to, r.IntN(2) == 0)}
		for range silent {
			lost = append(lost, silence(r.IntN(4)))
		}
		r.Shuffle(len(lost), func(i, j int) { lost[i], lost[j] = lost[j], lost[i] })
		length := []time.Duration{30 * time.Second, 3 * time.Minute, 12 * time.Minute}[r.IntN(3)]
		actions = append(append(actions, lost...), endOutage(to).after(upTo(r, length)))
		if comesBack {
			actions = append(actions, revive(0).after(upTo(r, 90*time.Second)))
		}
		if r.IntN(3) == 0 {
			actions = append(actions, outage(to, true).after(upTo(r, 4*time.Minute)),
				endOutage(to).after(upTo(r, 4*time.Minute)))
		}
		return actions
	}
}

// changesInOutage lets administrators make changes right before and during an outage of a cluster.
func changesInOutage(to int) func(*rand.Rand) []Action {
	return func(r *rand.Rand) []Action {
		any := func() Action {
			switch r.IntN(5) {
			case 0, 1:
				return scale(int32(r.IntN(5)))
			case 2:
				return roll([]string{"a", "with-token"}[r.IntN(2)])
			case 3:
				return deleteMachine(r.IntN(4))
			}
			return breakInstance(r.IntN(4))
		}
		var actions []Action
		if r.IntN(2) == 0 {
			actions = append(actions, any())
		}
		actions = append(actions,
			outage(to, r.IntN(2) == 0).after([]time.Duration{0, 0, 15 * time.Second, 30 * time.Second}[r.IntN(4)]))
		for range r.IntN(3) {
			actions = append(actions, any().after(upTo(r, time.Minute)))
		}
		if r.IntN(2) == 0 {
			return append(actions, endOutage(to).after(upTo(r, 14*time.Minute)))
		}
		// Kubelets retry at growing intervals.
		return append(actions, delayJoins().after(upTo(r, 14*time.Minute)), endOutage(to),
			revive(0).after(upTo(r, 90*time.Second)))
	}
}

// lateInOutage creates an instance shortly before an outage. Near the end of the outage, the machine is deleted, or the
// provider restarts after the join timeout has passed.
func lateInOutage(r *rand.Rand) []Action {
	actions := []Action{scale(3), delayJoins().onceThereIs(3, "instance"), outage(toTarget, true)}
	switch r.IntN(3) {
	case 0:
		return append(actions, bringUp(Provider, 0).after(9*time.Minute), endOutage(toTarget).after(upTo(r, 20*time.Second)),
			revive(0).after(upTo(r, 90*time.Second)))
	case 1:
		return append(actions, deleteMachine(2).after(time.Minute), endOutage(toTarget).after(15*time.Second))
	}
	// After half a minute without the cluster, the deletion continues.
	return append(actions, deleteMachine(2).after(time.Minute),
		endOutage(toTarget).after(30*time.Second-upTo(r, 10*time.Second)))
}

func delayJoins() Action {
	return Action{Name: "kubelets that have not joined wait",
		Do: func(_ context.Context, w *World, _ client.Client) error {
			for _, in := range w.cloud.instances {
				in.hung = in.hung || !in.registered
			}
			return nil
		}}
}
