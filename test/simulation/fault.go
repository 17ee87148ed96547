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

// These are the faults of one effect.
const (
	NoFault Fault = ""
	// CrashBefore ends the process before the effect, CrashAfter after it.
	CrashBefore Fault = "crash-before"
	CrashAfter  Fault = "crash-after"
	// Refused returns an error, and the effect does not happen.
	Refused Fault = "refused"
	// Lost returns an error, although the effect happens.
	Lost Fault = "lost"
	// Late returns an error, and the effect happens later. This is for calls of the cloud. Elsewhere it equals Lost.
	Late Fault = "late"
	// Conflict answers that another client was faster. Throttled answers that there are too many requests, and when to
	// retry. Denied answers that the request is forbidden. The effect does not happen.
	Conflict  Fault = "conflict"
	Throttled Fault = "throttled"
	Denied    Fault = "denied"
)

// These faults begin at an effect.
const (
	// LongDenied is Denied for deniedFor, for all requests of the process with this verb and kind.
	LongDenied Fault = "denied-for-long"
	// Restart1 and so on crash the process before the effect. After the restart, its first lists lack so many changes of
	// each kind.
	Restart1 Fault = "restart-1-back"
	Restart3 Fault = "restart-3-back"
	Restart9 Fault = "restart-9-back"
	// Unobserved lets the process see several changes of an object as one, for hiddenFor.
	Unobserved Fault = "unobserved"
	// TimeJumps lets a long time pass during the effect, for all processes: their host was suspended.
	TimeJumps Fault = "time-jumps"
	// ClockBack permanently sets back the wall clock of the process's host. A clock that is minutes ahead is not a fault:
	// the scenario clocks-differ tests it.
	ClockBack Fault = "clock-back"
	// InFlight lets the process lose its Lease while this request is in flight. Its successor works for a while, then the
	// request arrives. All later requests of the process meet a closed fence.
	InFlight Fault = "in-flight"
	// TwoLeaders suspends the process's host right before the effect, until another leader has worked for a while. Then
	// the process continues with its old knowledge, including writes and calls of the cloud, until the fence of its Lease
	// closes.
	TwoLeaders Fault = "two-leaders"

	// frozen and relisted are prefixes of fault names that end with a kind. The process's view of the kind receives no
	// changes for frozenFor. Then it continues, with a new list if relisted.
	frozen   = "freeze-"
	relisted = "relist-"
)

// These are the durations of disturbances.
const (
	deniedFor = 40 * time.Second
	hiddenFor = 2 * time.Minute
	frozenFor = 40 * time.Second
	jump      = 5 * time.Minute
	setBack   = 2 * time.Minute
	// renewDeadline and leaseDuration equal those of process.Config: how long a suspended leader may still consider itself
	// the leader, and after how long another process is elected. inFlight is how long a request is in flight.
	renewDeadline = 10 * time.Second
	leaseDuration = 15 * time.Second
	// fencedWait is how long a process exists after its fence has closed.
	fencedWait = 3 * time.Second
	inFlight   = 20 * time.Second
	// retryAfter is the delay that a throttled caller is told to wait.
	retryAfter = 5 * time.Second
)

// faultsOf returns the faults for an effect in random runs. A crash after a read equals one before the next effect.
func faultsOf(e Effect) []Fault {
	switch {
	case e.Reads:
		return []Fault{CrashBefore, Refused}
	case e.Cloud:
		return []Fault{CrashBefore, CrashAfter, Refused, Lost, Late}
	}
	return []Fault{CrashBefore, CrashAfter, Refused, Lost}
}

// everyFaultOf returns the faults that a plan can have at an effect of a process that caches some kinds.
func everyFaultOf(e Effect, cached []string) []Fault {
	out := append(faultsOf(e), Throttled, Restart1, Restart3, Restart9, Unobserved, TimeJumps, ClockBack, TwoLeaders)
	// The permission to read tokens does not change from one moment to the next. A provider without it creates no tokens.
	if !(e.Reads && e.Kind == "Secret" && strings.HasPrefix(e.Name, "kube-system/")) {
		out = append(out, Denied, LongDenied)
	}
	// Creations, reads and deletions without a version cannot meet an unexpected version.
	if e.Cloud && !e.Reads || e.Versioned || strings.HasPrefix(e.Verb, "update") || strings.HasPrefix(e.Verb, "patch") {
		out = append(out, Conflict)
	}
	// A bootstrap token that arrives after its machine has joined is removed when it expires, by a controller of
	// Kubernetes that is not in the world.
	if !e.Reads && !(e.Verb == "create" && e.Kind == "Secret") {
		out = append(out, InFlight)
	}
	for _, kind := range cached {
		out = append(out, Fault(frozen+kind), Fault(relisted+kind))
	}
	return out
}

// inject applies what a fault does before the effect happens.
func (p *Process) inject(f Fault, e Effect) {
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

// faultsLast reports whether a fault that began at an effect still lasts.
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

// denial is a request that a process may not send for a while.
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

// errorOf returns the error of an effect that does not happen, or nil if it happens.
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
		return provider.Errorf(provider.Aborted, "another operation is in progress")
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
