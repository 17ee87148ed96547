// Package bounds computes how far the number of machines of a MachineDeployment may differ from its replicas. The
// deployment and its sets keep these bounds.
package bounds

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
)

// Bounds limit how far the number of machines may differ from replicas during a rollout.
type Bounds struct {
	// MaxSurge is the maximum number of live machines in addition to replicas.
	MaxSurge int32
	// MaxUnavailable is the maximum number of replicas that may be unavailable.
	MaxUnavailable int32
}

// ForDeployment returns the bounds of a deployment with its current replicas.
func ForDeployment(d *v1beta1.MachineDeployment) (Bounds, error) {
	return Resolve(d.Spec.Strategy, max(0, d.ReplicasOrDefault()))
}

// Resolve converts the maxSurge and maxUnavailable of a strategy to numbers of machines. A percentage in maxSurge is
// rounded up, and one in maxUnavailable is rounded down. If both are 0, one machine may be unavailable, because a
// rollout could not advance otherwise.
//
// Recreate may make all machines unavailable. OnDelete permits neither surge nor unavailable machines. InPlace does not
// permit surge, and its maxUnavailable is at least 1.
func Resolve(strategy v1beta1.DeploymentStrategy, replicas int32) (Bounds, error) {
	switch strategy.TypeOrDefault() {
	case v1beta1.StrategyRecreate:
		return Bounds{MaxUnavailable: replicas}, nil
	case v1beta1.StrategyOnDelete:
		return Bounds{}, nil
	case v1beta1.StrategyInPlace:
		unavailable, err := scaled("inPlace.maxUnavailable", strategy.InPlaceMaxUnavailableOrDefault(), replicas, false)
		// An update makes its machine unavailable, so at least one must be permitted.
		return Bounds{MaxUnavailable: min(max(1, unavailable), replicas)}, err
	}
	surge, err := scaled("rollingUpdate.maxSurge", strategy.MaxSurgeOrDefault(), replicas, true)
	if err != nil {
		return Bounds{}, err
	}
	unavailable, err := scaled("rollingUpdate.maxUnavailable", strategy.MaxUnavailableOrDefault(), replicas, false)
	if err != nil {
		return Bounds{}, err
	}
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return Bounds{MaxSurge: surge, MaxUnavailable: min(unavailable, replicas)}, nil
}

func scaled(field string, value intstr.IntOrString, of int32, roundUp bool) (int32, error) {
	n, err := intstr.GetScaledValueFromIntOrPercent(&value, int(of), roundUp)
	switch {
	case err != nil:
		return 0, fmt.Errorf("spec.strategy.%s: %w", field, err)
	case n < 0:
		return 0, fmt.Errorf("spec.strategy.%s: %s is negative", field, value.String())
	}
	return int32(min(n, maxMachines)), nil
}

// maxMachines caps numbers that the CRD should have rejected, so that sums do not overflow.
const maxMachines = 1 << 24

// MinAvailable returns how many machines must stay available for the given number of replicas.
func (b Bounds) MinAvailable(replicas int32) int32 { return max(0, replicas-b.MaxUnavailable) }
