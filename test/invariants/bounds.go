// Package invariants contains what the simulation and the chaos runs both need to check invariant I3: how many
// machines a set or a deployment may have, how many must be available, and which of its versions count for a
// decision.
//
// The package computes the numbers again and imports no controller, so that a bug of a controller cannot hide itself.
// Both users keep the versions of objects by a position that grows with time: the simulation by revision, chaos by
// clock.
package invariants

import (
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// Bounds are the numbers of machines that one version of a set or a deployment requires.
type Bounds struct {
	// Most is the maximum number of live machines, Least the minimum number of available ones.
	Most, Least int
	// Replicas is the number of machines in the specification.
	Replicas int
	// MinReadySeconds is how long a machine must have been Ready to count as available.
	MinReadySeconds int32
}

// BoundsOfSet returns the bounds of a set, which are exactly its replicas.
func BoundsOfSet(s *v1beta1.MachineSet) Bounds {
	n := Replicas(s.Spec.Replicas)
	return Bounds{n, n, n, s.Spec.MinReadySeconds}
}

// BoundsOfDeployment returns the bounds of a deployment according to its strategy. An invalid value counts as the
// default.
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

// Replicas returns the value of a replicas field. A missing value counts as the API's default.
func Replicas(n *int32) int {
	if n == nil {
		return int(v1beta1.DefaultReplicas)
	}
	return int(*n)
}

// Owner is a set or a deployment with the bounds of its versions. A decision may be based on a version that is not
// the last one.
type Owner struct {
	// Controller is the UID of the deployment that controls a set. It is empty for a deployment.
	Controller types.UID
	// Versions are in order, and each one differs from the one before.
	Versions []VersionBounds
}

// VersionBounds are the bounds from a position on, until the next version.
type VersionBounds struct {
	Position int64
	Bounds
}

// Note adds the bounds of a version of an object, and stores the UID of the object's controller.
func (o *Owner) Note(position int64, object client.Object, b Bounds) {
	o.Controller = ""
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
		o.Controller = owner.UID
	}
	if n := len(o.Versions); n == 0 || o.Versions[n-1].Bounds != b {
		o.Versions = append(o.Versions, VersionBounds{position, b})
	}
}

// Last returns the bounds of the last version.
func (o *Owner) Last() Bounds { return o.Versions[len(o.Versions)-1].Bounds }

// Within returns the widest bounds among the versions that were valid after a position. A controller that had seen
// everything up to that position may base its decision on any of them.
func (o *Owner) Within(since int64) (most, least int) {
	least = math.MaxInt
	for i, v := range o.Versions {
		if i+1 < len(o.Versions) && o.Versions[i+1].Position <= since {
			continue
		}
		most, least = max(most, v.Most), min(least, v.Least)
	}
	return most, least
}
