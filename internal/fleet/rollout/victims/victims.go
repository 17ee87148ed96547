// Package victims decides which machines a set deletes if the set has too many machines. The set calls Choose. The
// deployment calls ForecastOf before it lowers the set's replicas. If the two functions disagreed, too few machines
// would stay available, or the deployment would wait for the deletion of a machine that the set keeps.
package victims

import (
	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// Choose returns which machines a set with surplus machines deletes. The parameter order contains all machines of
// the set in the order of deletion. It chooses at most as many available machines as the parameter spare permits.
// If an available machine must be kept, Choose selects the next unavailable machine instead, provided that
// controllers may change that machine. The result blocked contains the available surplus machines for which Choose
// found no such substitute.
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

// Forecast predicts which machines a set deletes when its replicas are lowered. The forecast is valid for every
// delete policy. It stays valid if machines change before the set chooses the machines to delete.
type Forecast struct {
	// UnavailableFirst is how many unavailable machines the set deletes before it deletes an available machine, even if it
	// may delete available machines.
	UnavailableFirst int32
	// Expendable is how many machines the set can delete without deleting an available machine.
	Expendable int32
}

// ForecastOf returns the forecast for a set that has the given machines.
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
