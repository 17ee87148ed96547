package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"machinist.dev/machinist/pkg/provider"
)

// Fault is what goes wrong with an effect, or begins at one.
type Fault string

// The faults of one effect.
const (
	NoFault Fault = ""
	// CrashBefore ends the process before the effect, CrashAfter when it has happened.
	CrashBefore Fault = "crash-before"
	CrashAfter  Fault = "crash-after"
	// Refused answers with an error, and nothing happened.
	Refused Fault = "refused"
	// Lost answers with an error although it has happened.
	Lost Fault = "lost"
	// Late answers with an error, and it happens later. It is for calls of the cloud; elsewhere it is like Lost.
	Late Fault = "late"
	// Conflict answers that somebody else was faster, Throttled that it is too much and when to come again, Denied that
	// this is forbidden. None of them happens.
	Conflict  Fault = "conflict"
	Throttled Fault = "throttled"
	Denied    Fault = "denied"
)

// What begins at an effect.
const (
	// LongDenied is Denied for deniedFor, for all of the process's requests of this verb and kind.
	LongDenied Fault = "denied-for-long"
	// Restart1 and so on crash the process before the effect; its next life begins with lists that lack so many changes
	// of each kind. Restart0 is CrashBefore, but for sure with lists of now.
	Restart1 Fault = "restart-1-back"
	Restart3 Fault = "restart-3-back"
	Restart9 Fault = "restart-9-back"
	// Unobserved has the process see several changes of an object as one, for hiddenFor.
	Unobserved Fault = "unobserved"
	// TimeJumps lets a long time pass in the middle of the effect, for everybody: the host of all was suspended.
	TimeJumps Fault = "time-jumps"
	// ClockBack sets the wall clock of the process's host back, and there it stays. That the clock of a host is minutes
	// ahead is no fault, but what the scenario clocks-differ is about.
	ClockBack Fault = "clock-back"
	// InFlight has the process lose its lease while this request is on its way: its successor works for a while, then the
	// request arrives, and all that comes after it meets a closed fence.
	InFlight Fault = "in-flight"
	// TwoLeaders suspends the process's host right before the effect, until another leader has worked for a while. Then it
	// goes on with what it knew, writes and calls of the cloud included, until the fence of its lease closes.
	TwoLeaders Fault = "two-leaders"

	// frozen and relisted begin the names of Frozen and Relisted, which end with a kind. The process's view of the kind
	// stands still for frozenFor. Then it continues, with a new list if relisted.
	frozen   = "freeze-"
	relisted = "relist-"
)

// How long disturbances take.
const (
	deniedFor = 40 * time.Second
	hiddenFor = 2 * time.Minute
	frozenFor = 40 * time.Second
	jump      = 5 * time.Minute
	setBack   = 2 * time.Minute
	// renewDeadline and leaseDuration are the lease's of operator.Config: for so long a leader that was suspended may take
	// itself for the leader, and after so long another one is elected. inFlight is how long a request is on its way.
	renewDeadline = 10 * time.Second
	leaseDuration = 15 * time.Second
	// fencedWait is how long a process whose fence has closed is there.
	fencedWait = 3 * time.Second
	inFlight   = 20 * time.Second
	// retryAfter is how long a throttled caller is asked to wait.
	retryAfter = 5 * time.Second
)

// faultsOf are those that make sense for an effect, at random runs. A crash after a read is one before the next effect.
func faultsOf(e Effect) []Fault {
	switch {
	case e.Reads:
		return []Fault{CrashBefore, Refused}
	case e.Cloud:
		return []Fault{CrashBefore, CrashAfter, Refused, Lost, Late}
	}
	return []Fault{CrashBefore, CrashAfter, Refused, Lost}
}

// everyFaultOf are those that a plan can have at an effect of a process that caches some kinds.
func everyFaultOf(e Effect, cached []string) []Fault {
	out := append(faultsOf(e), Throttled, Restart1, Restart3, Restart9, Unobserved, TimeJumps, ClockBack, TwoLeaders)
	// Whether a provider may read tokens at all does not change from one moment to the next: who may not makes none.
	if !(e.Reads && e.Kind == "Secret" && strings.HasPrefix(e.Name, "kube-system/")) {
		out = append(out, Denied, LongDenied)
	}
	// What is created or read cannot be another version than expected, nor what is deleted without saying of which.
	if e.Cloud && !e.Reads || e.Versioned || strings.HasPrefix(e.Verb, "update") || strings.HasPrefix(e.Verb, "patch") {
		out = append(out, Conflict)
	}
	// A bootstrap token that arrives when its machine has joined ends with its time: Kubernetes' own controller, which
	// is not in the world, removes it.
	if !e.Reads && !(e.Verb == "create" && e.Kind == "Secret") {
		out = append(out, InFlight)
	}
	for _, kind := range cached {
		out = append(out, Fault(frozen+kind), Fault(relisted+kind))
	}
	return out
}

// strike does what a fault does before the effect happens.
func (p *Process) strike(f Fault, e Effect) {
	w := p.world
	switch f {
	case CrashBefore:
		p.die()
	case Restart1, Restart3, Restart9:
		p.rewind = map[Fault]int{Restart1: 1, Restart3: 3, Restart9: 9}[f]
		p.die()
	case LongDenied:
		p.denials = append(slices.Clip(p.denials), denial{e.Verb, e.Kind, w.clock.at.Add(deniedFor)})
	case Unobserved:
		for _, v := range p.views() {
			v.mergedUntil = w.clock.at.Add(hiddenFor)
		}
	case TimeJumps:
		w.pass(jump)
		w.safety.slept = append(w.safety.slept, w.clock.at)
	case ClockBack:
		p.clock.behind += setBack
	case InFlight:
		w.depose(p)
		w.meanwhile(p, inFlight)
		p.until = w.clock.at
	case TwoLeaders:
		w.depose(p)
		w.meanwhile(p, leaseDuration)
		p.until = w.clock.at.Add(renewDeadline)
	default:
		if kind, ok := strings.CutPrefix(string(f), frozen); ok {
			p.freeze(kind, false)
		} else if kind, ok := strings.CutPrefix(string(f), relisted); ok {
			p.freeze(kind, true)
		}
	}
	w.disturbed, w.stepsAtFault = w.clock.at, w.steps
}

func (p *Process) freeze(kind string, lost bool) {
	for _, v := range p.views() {
		if v.gvk.Kind == kind {
			v.frozenUntil, v.lost = p.world.clock.at.Add(frozenFor), lost
		}
	}
}

// faultsLast reports whether something is still wrong that began at an effect.
func (w *World) faultsLast() bool {
	if w.election != nil {
		return true
	}
	for _, p := range w.processes {
		if p.former && !p.dead {
			return true
		}
		for _, v := range p.views() {
			if !v.frozenUntil.IsZero() {
				return true
			}
		}
	}
	return false
}

// denial is what a process may not do for a while.
type denial struct {
	verb, kind string
	until      time.Time
}

func (p *Process) denied(e Effect) bool {
	for _, d := range p.denials {
		if d.verb == e.Verb && d.kind == e.Kind && p.world.clock.at.Before(d.until) {
			return true
		}
	}
	return false
}

// errorOf returns the answer to an effect that does not happen, and nil if it happens.
func (p *Process) errorOf(f Fault, e Effect) error {
	if err := p.world.webhookRefuses(e); err != nil {
		return err
	}
	if f == NoFault && p.denied(e) {
		p.world.disturbed = p.world.clock.at
		f = Denied
	}
	resource := schema.GroupResource{Resource: strings.ToLower(e.Kind) + "s"}
	switch {
	case f == Refused:
		return errNoAnswer
	case f == Conflict && e.Cloud:
		return provider.Errorf(provider.Aborted, "another operation is under way")
	case f == Conflict:
		return apierrors.NewConflict(resource, e.Name, fmt.Errorf("the object has been modified"))
	case f == Throttled && e.Cloud:
		return &provider.Error{Code: provider.Throttled, Message: "slow down", RetryAfter: retryAfter}
	case f == Throttled:
		return apierrors.NewTooManyRequests("slow down", int(retryAfter/time.Second))
	case (f == Denied || f == LongDenied) && e.Cloud:
		return provider.Errorf(provider.PermissionDenied, "not allowed")
	case f == Denied || f == LongDenied:
		return apierrors.NewForbidden(resource, e.Name, fmt.Errorf("not allowed"))
	}
	return nil
}
