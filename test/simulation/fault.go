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

// Fault is a failure of one effect, or a disturbance that begins at an effect.
type Fault string

// These faults concern a single effect.
const (
	NoFault Fault = ""
	// CrashBefore ends the process before the effect. CrashAfter ends the process after the effect.
	CrashBefore Fault = "crash-before"
	CrashAfter  Fault = "crash-after"
	// Refused: the process gets an error, and the effect does not happen.
	Refused Fault = "refused"
	// Lost: the process gets an error, but the effect happens.
	Lost Fault = "lost"
	// Late: the process gets an error, and the effect happens later. Only a call of the cloud can be late. For other
	// effects, Late has the same meaning as Lost.
	Late Fault = "late"
	// Conflict returns the error that another client has changed the object in the meantime. Throttled returns the error
	// that there were too many requests. The error contains the time after which the process may try again. Denied returns
	// the error that the request is forbidden. In these three cases, the effect does not happen.
	Conflict  Fault = "conflict"
	Throttled Fault = "throttled"
	Denied    Fault = "denied"
)

// These faults begin at an effect.
const (
	// LongDenied is like Denied, but lasts for deniedFor. It affects all requests of the process with the same
	// verb and kind.
	LongDenied Fault = "denied-for-long"
	// Restart1, Restart3 and Restart9 crash the process before the effect. After the restart, the first list of each kind
	// does not contain the last 1, 3 or 9 changes.
	Restart1 Fault = "restart-1-back"
	Restart3 Fault = "restart-3-back"
	Restart9 Fault = "restart-9-back"
	// Unobserved shows several changes of an object to the process as a single change. It lasts for hiddenFor.
	Unobserved Fault = "unobserved"
	// TimeJumps suspends the hosts of all processes during the effect, so that the time jumps forward for all of them.
	TimeJumps Fault = "time-jumps"
	// ClockBack sets back the wall clock of the process's host. The clock is not corrected later. There is no fault that
	// sets a clock forward by minutes, because the scenario clocks-differ tests that.
	ClockBack Fault = "clock-back"
	// InFlight: the process loses its Lease while this request is in flight. The next leader works for a while, and then
	// the request arrives. The closed fence of the process rejects all its later requests.
	InFlight Fault = "in-flight"
	// TwoLeaders suspends the host of the process directly before the effect. Meanwhile, another process becomes the
	// leader and works for a while. After that, the first process continues with its old knowledge. The first process may
	// still write and call the cloud, until the fence of its Lease closes.
	TwoLeaders Fault = "two-leaders"

	// frozen and relisted are prefixes of the names of two groups of faults. Each of these names ends with a kind. For
	// frozenFor, the process receives no changes of objects of this kind. After the fault frozen, the process
	// receives the missed changes. After the fault relisted, the process receives a new list.
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
	// renewDeadline and leaseDuration are the same as in process.Config. For renewDeadline, a suspended leader may still
	// consider itself the leader. After leaseDuration, another process is elected. inFlight is the time for which a
	// request is in flight.
	renewDeadline = 10 * time.Second
	leaseDuration = 15 * time.Second
	// fencedWait is the time for which a process still exists after its fence has closed.
	fencedWait = 3 * time.Second
	inFlight   = 20 * time.Second
	// retryAfter is the time that a throttled client must wait before it tries again.
	retryAfter = 5 * time.Second
)

// faultsOf returns the faults that an effect can have in random runs. There is no crash after a read, because it equals
// a crash before the next effect.
func faultsOf(e Effect) []Fault {
	switch {
	case e.Reads:
		return []Fault{CrashBefore, Refused}
	case e.Cloud:
		return []Fault{CrashBefore, CrashAfter, Refused, Lost, Late}
	}
	return []Fault{CrashBefore, CrashAfter, Refused, Lost}
}

// everyFaultOf returns all faults that an effect can have in a plan. cached contains the kinds that the process caches.
func everyFaultOf(e Effect, cached []string) []Fault {
	out := append(faultsOf(e), Throttled, Restart1, Restart3, Restart9, Unobserved, TimeJumps, ClockBack, TwoLeaders)
	// This read has no permission error, because the permission to read tokens does not change during a run. If a provider
	// does not have this permission, it creates no tokens.
	if !(e.Reads && e.Kind == "Secret" && strings.HasPrefix(e.Name, "kube-system/")) {
		out = append(out, Denied, LongDenied)
	}
	// A creation, a read, or a deletion without a resource version cannot conflict with another write, because it
	// has no precondition.
	if e.Cloud && !e.Reads || e.Versioned || strings.HasPrefix(e.Verb, "update") || strings.HasPrefix(e.Verb, "patch") {
		out = append(out, Conflict)
	}
	// A bootstrap token may arrive after its machine has joined. In a real cluster, a controller of Kubernetes removes the
	// token when it expires. The world does not have this controller.
	if !e.Reads && !(e.Verb == "create" && e.Kind == "Secret") {
		out = append(out, InFlight)
	}
	for _, kind := range cached {
		out = append(out, Fault(frozen+kind), Fault(relisted+kind))
	}
	return out
}

// inject does what a fault requires before the effect happens.
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
		w.letOthersAct(p, inFlight)
		p.until = w.clock.at
	case TwoLeaders:
		w.depose(p)
		w.letOthersAct(p, leaseDuration)
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

// faultsLast reports whether any fault that began at an earlier effect still lasts.
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

// denial describes requests that a process is not permitted to send for some time.
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

// errorOf returns the error of an effect if the effect does not happen. Otherwise it returns nil.
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
