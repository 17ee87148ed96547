// Package victims decides which machines a set deletes when it has too many. The set calls Choose, and its deployment
// calls ForecastOf before it lowers the set's replicas: if both did not agree, either too few machines would stay
// available, or the deployment would wait for a machine that the set does not mean to delete.
package victims

import (
	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// Choose returns which machines a set with a surplus deletes, of all its machines in the order of deletion. At most
// spare available machines may go. An available machine beyond that stays, and the next machine that is not available
// is deleted instead, unless no controller may change it. Blocked are the available machines that stay although the
// surplus is not deleted completely.
func Choose(order []*v1beta1.Machine, surplus, spare int, available func(*v1beta1.Machine) bool) (victims,
	blocked []*v1beta1.Machine) {
	for i, m := range order {
		switch {
		case i >= surplus && len(blocked) == 0:
			return victims, nil
		case !available(m) && i >= surplus && machinestate.Unchangeable(m):
		case !available(m):
			victims = append(victims, m)
			if i >= surplus {
				blocked = blocked[:len(blocked)-1]
			}
		case i >= surplus:
		case spare > 0:
			victims = append(victims, m)
			spare--
		default:
			blocked = append(blocked, m)
		}
	}
	return victims, blocked
}

// Forecast is what a set's deletions cost, whatever its delete policy is, and although machines may still change until
// the set chooses.
type Forecast struct {
	// First is how many machines that are not available the set deletes before it deletes an available one, even if
	// available ones can be spared.
	First int32
	// Free is how many machines the set can delete if no available one can be spared.
	Free int32
}

// ForecastOf returns the forecast for a set with these machines.
func ForecastOf(machines []*v1beta1.Machine, available func(*v1beta1.Machine) bool) (f Forecast) {
	var firstAvailable *machinestate.Precedence
	var unavailable []machinestate.Precedence
	for _, m := range machines {
		if !machinestate.Live(m) {
			continue
		}
		precedence := machinestate.PrecedenceOf(m).Coarse()
		switch {
		case !available(m):
			unavailable = append(unavailable, precedence)
			if !machinestate.Unchangeable(m) {
				f.Free++
			}
		case firstAvailable == nil || precedence.Compare(*firstAvailable) < 0:
			firstAvailable = &precedence
		}
	}
	for _, precedence := range unavailable {
		if firstAvailable == nil || precedence.Compare(*firstAvailable) < 0 {
			f.First++
		}
	}
	f.Free = max(f.Free, f.First)
	return f
}
