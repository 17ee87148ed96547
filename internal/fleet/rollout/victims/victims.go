// Package victims decides which machines a set with too many machines deletes. The set calls Choose, and the
// deployment calls ForecastOf before it lowers replicas. Both results must agree. Otherwise too few machines would
// stay available, or a rollout would wait for a deletion that never happens.
package victims

import (
	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// Choose returns the machines that a set with a surplus deletes. The machines are in deletion order, and spare is the
// maximum number of available machines to delete. When Choose has reached this maximum, it skips available machines.
// For each skipped machine, it chooses a later unavailable machine that controllers may change. The result blocked
// contains the skipped machines that no unavailable machine replaces.
func Choose(order []*v1beta1.Machine, surplus, spare int, available func(*v1beta1.Machine) bool) (victims,
	blocked []*v1beta1.Machine) {
	for i, m := range order {
		switch {
		case i >= surplus && len(blocked) == 0:
			return victims, nil
		case !available(m) && i >= surplus && machinestate.IsUnchangeable(m):
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

// Forecast predicts which machines a set deletes when its replicas are lowered. The prediction is right for every
// delete policy, even if machines change before the set decides.
type Forecast struct {
	// UnavailableFirst is how many unavailable machines the set deletes before the first available one.
	UnavailableFirst int32
	// Expendable is how many machines the set can delete without deleting an available machine.
	Expendable int32
}

// ForecastOf returns the forecast for a set that has the given machines.
func ForecastOf(machines []*v1beta1.Machine, available func(*v1beta1.Machine) bool) (f Forecast) {
	var firstAvailable *machinestate.Precedence
	var unavailable []machinestate.Precedence
	for _, m := range machines {
		if !machinestate.IsLive(m) {
			continue
		}
		precedence := machinestate.PrecedenceOf(m).WithoutDetails()
		switch {
		case !available(m):
			unavailable = append(unavailable, precedence)
			if !machinestate.IsUnchangeable(m) {
				f.Expendable++
			}
		case firstAvailable == nil || precedence.Compare(*firstAvailable) < 0:
			firstAvailable = &precedence
		}
	}
	for _, precedence := range unavailable {
		if firstAvailable == nil || precedence.Compare(*firstAvailable) < 0 {
			f.UnavailableFirst++
		}
	}
	f.Expendable = max(f.Expendable, f.UnavailableFirst)
	return f
}
