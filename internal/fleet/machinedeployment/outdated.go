package machinedeployment

import "machinist.dev/machinist/api/v1beta1"

// declareOutdated annotates set i while the deployment replaces its machines step by step. The provider then taints
// their Nodes. inUse is false for a set that is kept only for a rollback: the annotation alone is not worth a write.
func (v *view) declareOutdated(set *v1beta1.MachineSet, i int, inUse bool) {
	switch {
	case !v.mayStartRevision() || v.state.Current < 0:
		// The rollout is stopped but not complete, or the set of the wanted revision cannot be created yet.
	case i == v.state.Current, !v.taintsOutdated, !v.state.replacesStepByStep():
		delete(set.Annotations, v1beta1.AnnotationOutdated)
	case inUse:
		annotate(set, v1beta1.AnnotationOutdated, "")
	}
}

// replacesStepByStep reports whether the deployment replaces or updates machines of old revisions step by step. A taint
// is of no use if the deployment waits for an administrator, perhaps for weeks, or deletes all machines at once.
func (s State) replacesStepByStep() bool {
	return s.Strategy == v1beta1.StrategyRollingUpdate || s.updatesInPlace() && !s.Manual
}
