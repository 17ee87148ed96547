package machinedeployment

import "machinist.dev/machinist/api/v1beta1"

// declareOutdated adds an annotation to set i while the deployment replaces its machines step by step. The provider
// then taints the Nodes of these machines. The parameter inUse is false for a set that is kept only for a rollback.
// If only the annotation of such a set would change, no write is made.
func (v *view) declareOutdated(set *v1beta1.MachineSet, i int, inUse bool) {
	switch {
	case !v.mayStartRevision() || v.state.Current < 0:
		// The rollout is stopped before its end, or the set of the wanted revision cannot be created yet.
	case i == v.state.Current, !v.taintsOutdated, !v.state.replacesStepByStep():
		delete(set.Annotations, v1beta1.AnnotationOutdated)
	case inUse:
		annotate(set, v1beta1.AnnotationOutdated, "")
	}
}

// replacesStepByStep reports whether the deployment replaces or updates machines of old revisions step by step. A
// taint is of no use if the deployment waits, perhaps for weeks, for an administrator, or deletes all machines at
// once.
func (s State) replacesStepByStep() bool {
	return s.Strategy == v1beta1.StrategyRollingUpdate || s.updatesInPlace() && !s.Manual
}
