package machinedeployment

import "machinist.dev/machinist/api/v1beta1"

// declareOutdated annotates set i while a rollout replaces its machines. The provider then taints the Nodes of these
// machines. If a set is not in use, a missing or outdated annotation alone is no reason to write the set.
func (v *view) declareOutdated(set *v1beta1.MachineSet, i int, inUse bool) {
	switch {
	case !v.mayStartRevision() || v.state.CurrentIndex < 0:
		// The rollout has stopped, or the set of the wanted revision cannot be created yet.
	case i == v.state.CurrentIndex, !v.taintsOutdated, !v.state.replacesStepByStep(), v.plan.StopReason != "":
		delete(set.Annotations, v1beta1.AnnotationOutdated)
	case inUse:
		annotate(set, v1beta1.AnnotationOutdated, "")
	}
}

// replacesStepByStep reports whether the rollout replaces or updates old machines step by step. A taint is useless if
// the rollout waits for an administrator, perhaps for weeks, or deletes all machines at once.
func (s State) replacesStepByStep() bool {
	return s.Strategy == v1beta1.StrategyRollingUpdate || s.updatesInPlace() && !s.Manual
}
