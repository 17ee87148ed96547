// Package invariants computes what the simulation and the chaos runs need to check invariant I3. Invariant I3 limits
// how many machines a set or a deployment may have, and how many must be available. The package also finds the versions
// on which a decision may be based.
//
// The package imports no controller, because the check must not share the bugs of a controller. The versions of an
// object are ordered by their positions. In the simulation, the position is a revision, and in chaos runs it is a time.
package invariants

import (
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// Bounds contains the numbers of machines that one version of a set or a deployment allows or requires.
type Bounds struct {
	// MaxLive is the maximum number of live machines, and MinAvailable is the minimum number of available machines.
	MaxLive, MinAvailable int
	// Replicas is spec.replicas.
	Replicas int
	// MinReadySeconds is how long a machine must have been Ready before it is available.
	MinReadySeconds int32
}

// BoundsOfSet returns the bounds of a set. The maximum and the minimum equal spec.replicas of the set.
func BoundsOfSet(s *v1beta1.MachineSet) Bounds {
	n := Replicas(s.Spec.Replicas)
	return Bounds{n, n, n, s.Spec.MinReadySeconds}
}

// BoundsOfDeployment returns the bounds of a deployment according to its strategy. Invalid values count as the default.
func BoundsOfDeployment(d *v1beta1.MachineDeployment) Bounds {
	n := Replicas(d.Spec.Replicas)
	surge, unavailable := 1, 0
	switch s := d.Spec.Strategy; s.Type {
	case v1beta1.StrategyRecreate:
		surge, unavailable = 0, n
	case v1beta1.StrategyOnDelete:
		surge = 0
	case v1beta1.StrategyInPlace:
		surge, unavailable = 0, 1
		if s.InPlace != nil {
			unavailable = max(1, scaled(s.InPlace.MaxUnavailable, n, unavailable, false))
		}
	default:
		if r := s.RollingUpdate; r != nil {
			surge, unavailable = scaled(r.MaxSurge, n, surge, true), scaled(r.MaxUnavailable, n, unavailable, false)
		}
	}
	return Bounds{n + surge, n - unavailable, n, d.Spec.MinReadySeconds}
}

func scaled(value *intstr.IntOrString, n, defaultValue int, roundUp bool) int {
	if value == nil {
		return defaultValue
	}
	out, err := intstr.GetScaledValueFromIntOrPercent(value, n, roundUp)
	if err != nil {
		return defaultValue
	}
	return out
}

// Replicas returns the value of a replicas field, or the default of the API.
func Replicas(n *int32) int {
	if n == nil {
		return int(v1beta1.DefaultReplicas)
	}
	return int(*n)
}

// Owner records the bounds of each version of one set or deployment. Old versions are kept, because a decision may be
// based on an old version.
type Owner struct {
	// Controller is the UID of the deployment that controls a set. Controller is empty for a deployment.
	Controller types.UID
	// Versions are sorted by position. Neighbors have different bounds.
	Versions []VersionBounds
}

// VersionBounds contains the bounds of one version. The bounds apply until the position of the next version.
type VersionBounds struct {
	Position int64
	Bounds
}

// Note adds a version of an object and its bounds to the history, and stores the UID of the object's controller.
func (o *Owner) Note(position int64, object client.Object, b Bounds) {
	o.Controller = ""
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
		o.Controller = owner.UID
	}
	if n := len(o.Versions); n == 0 || o.Versions[n-1].Bounds != b {
		o.Versions = append(o.Versions, VersionBounds{position, b})
	}
}

// LastBounds returns the bounds of the last version.
func (o *Owner) LastBounds() Bounds { return o.Versions[len(o.Versions)-1].Bounds }

// BoundsSince returns the bounds for a controller that has seen all changes before the given position. The controller
// may base its decision on the version at this position or on any later version. So BoundsSince returns the highest
// maximum and the lowest minimum of these versions.
func (o *Owner) BoundsSince(since int64) (most, least int) {
	least = math.MaxInt
	for i, v := range o.Versions {
		if i+1 < len(o.Versions) && o.Versions[i+1].Position <= since {
			continue
		}
		most, least = max(most, v.MaxLive), min(least, v.MinAvailable)
	}
	return most, least
}
