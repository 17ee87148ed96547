package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/versionskew"
	"machinist.dev/machinist/test/invariants"
)

// Rollouts over several minor versions with spec.versionSteps. The machines begin with firstVersion.
const (
	stepVersion       = "v1.37.4"
	otherStepVersion  = "v1.38.1"
	steppedVersion    = "v1.38.2"
	farSteppedVersion = "v1.39.0"
)

func versionStepScenarios() []Scenario {
	inPlace := ofType(v1beta1.StrategyInPlace)
	pause := func(d *v1beta1.MachineDeployment) {
		d.Spec.Strategy.RollingUpdate.PauseAfter = &v1beta1.RolloutPause{Machines: 1}
	}
	return []Scenario{
		{Name: "version-steps", Group: Fleets, Variants: 4, Base: fleet(3, "a", strategy(1, 1), ofFirstVersion),
			Script: steppedUpgrade("b", "c"), MayDiffer: passedRevisions},
		{Name: "version-steps-recreate", Group: Fleets, Base: fleet(2, "a", ofType(v1beta1.StrategyRecreate), ofFirstVersion),
			Script: steppedUpgrade("", "b"), MayDiffer: passedRevisions},
		{Name: "version-steps-in-place", Group: Fleets, Variants: 3, Base: fleet(2, agentClass, inPlace, ofFirstVersion),
			Script: steppedUpgrade("", agentClass), MayDiffer: passedRevisions},
		{Name: "version-step-missing", Group: Fleets, Base: fleet(2, "a", strategy(1, 0), ofFirstVersion),
			Script: missingStep, MayDiffer: passedRevisions},
		{Name: "version-steps-pause-after", Group: Fleets, Base: fleet(3, "a", strategy(1, 0), pause, ofFirstVersion),
			Script: promotedSteps, MayDiffer: passedRevisions},
		{Name: "version-step-undone", Group: Fleets, Base: fleet(3, "a", strategy(1, 0), ofFirstVersion),
			Script: undoneStep, MayDiffer: passedRevisions},
	}
}

// steppedUpgrade upgrades by two minor versions with a step. In the middle, a machine breaks or the fleet is scaled,
// and the target may rise.
func steppedUpgrade(stepClass, class string) func(r *rand.Rand) []Action {
	return func(r *rand.Rand) []Action {
		actions := []Action{stepsInOrder(), upgradeInSteps(class, steppedVersion, step(stepVersion, stepClass))}
		begun := func(w *World) bool { return w.anyMachineHas(stepVersion) || w.anyMachineHas(steppedVersion) }
		switch r.IntN(4) {
		case 0:
			actions = append(actions, scale(int32(1+r.IntN(4))).waitFor("the first step has begun", begun))
		case 1:
			actions = append(actions, disturbance(r).waitFor("the first step has begun", begun))
		case 2:
			actions = append(actions, kill(Manager).waitFor("the first step has begun", begun))
		case 3:
			actions = append(actions, upgradeInSteps(class, farSteppedVersion, step(stepVersion, stepClass),
				step(otherStepVersion, "")).waitFor("the first step has begun", begun))
		}
		return actions
	}
}

// missingStep upgrades without the version in between, and adds the version later.
func missingStep(*rand.Rand) []Action {
	return []Action{stepsInOrder(), upgradeInSteps("b", steppedVersion, step("v1.35.0", "")),
		scale(3).waitFor("the rollout waits", stoppedBy(v1beta1.ReasonVersionStepMissing)),
		upgradeInSteps("b", steppedVersion, step(stepVersion, "")).waitFor("the rollout waits with 3 machines", func(w *World) bool {
			return w.canary() == nil || w.liveMachines() == 3 && stoppedBy(v1beta1.ReasonVersionStepMissing)(w)
		})}
}

// promotedSteps promotes the revision of each step.
func promotedSteps(*rand.Rand) []Action {
	waiting := func(version string) func(*World) bool {
		return func(w *World) bool {
			d := w.canary()
			return d == nil || stoppedBy(v1beta1.ReasonWaitingForPromotion)(w) && d.Status.VersionStep != nil &&
				d.Status.VersionStep.Version == version
		}
	}
	return []Action{stepsInOrder(), upgradeInSteps("b", steppedVersion, step(stepVersion, "")),
		promote("").waitFor("the first step waits", waiting(stepVersion)),
		promote("").waitFor("the last step waits", waiting(steppedVersion))}
}

// undoneStep returns to the first version during the first step.
func undoneStep(*rand.Rand) []Action {
	return []Action{stepsInOrder(), upgradeInSteps("b", steppedVersion, step(stepVersion, "")),
		upgradeInSteps("a", firstVersion).waitFor("the first step has begun", func(w *World) bool {
			return w.anyMachineHas(stepVersion) || w.anyMachineHas(steppedVersion)
		})}
}

func step(version, class string) v1beta1.VersionStep {
	return v1beta1.VersionStep{Version: version, ClassName: class}
}

func upgradeInSteps(class, version string, steps ...v1beta1.VersionStep) Action {
	return edit(fmt.Sprintf("upgrade to %s in steps", version), func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.Spec.ClassRef = &v1beta1.LocalRef{Name: class}
		d.Spec.Template.Spec.Version, d.Spec.VersionSteps = version, steps
	})
}

func (w *World) anyMachineHas(version string) bool {
	return slices.ContainsFunc(w.machines(), func(m *v1beta1.Machine) bool { return m.Spec.Version == version })
}

// stepsInOrder checks after each write what docs/updates.md promises: no set of a later version exists while machines
// of a version before the previous minor version exist, each minor version had machines before the next one gets any,
// and no machine in service gets a version that is more than one minor version later.
func stepsInOrder() Action {
	return addStatement("the steps are in order", func(w *World) string {
		if d := w.canary(); d == nil || len(d.Spec.VersionSteps) == 0 {
			return ""
		}
		for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineSet")) {
			set := o.(*v1beta1.MachineSet)
			later, _ := versionskew.MinorOf(set.Spec.Template.Spec.Version)
			for _, m := range w.machines() {
				minor, _ := versionskew.MinorOf(m.Spec.Version)
				if owner := metav1.GetControllerOfNoCopy(m); owner != nil && owner.UID != set.UID &&
					later.Compare(minor.Next()) > 0 {
					return fmt.Sprintf("set %s has version %s while machine %s has %s", set.Name, set.Spec.Template.Spec.Version,
						m.Name, m.Spec.Version)
				}
			}
		}
		var versions []string
		for _, history := range w.oracle.history {
			for _, v := range history {
				if v.machine != nil {
					versions = append(versions, v.machine.Spec.Version)
				}
			}
		}
		if skipped := invariants.SkippedMinor(versions); skipped != "" {
			return fmt.Sprintf("no machine has had version %s", skipped)
		}
		for _, in := range w.cloud.instances {
			node := w.node(in.NodeName)
			if in.kubelet == "" || node == nil || node.Spec.ProviderID != in.ProviderID {
				continue
			}
			requested := node.Annotations[v1beta1.NodeAnnotationUpdateRequested]
			after, ok := versionskew.MinorOf(requested)
			if before, _ := versionskew.MinorOf(in.kubelet); ok && !before.IsAdjacent(after) {
				return fmt.Sprintf("the agent on node %s with %s is asked for %s", node.Name, in.kubelet, requested)
			}
		}
		return ""
	})
}
