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

// Fault is a disturbance of a run: one effect fails, or a longer disturbance begins at the effect.
type Fault string

// These faults concern a single effect.
const (
	NoFault Fault = ""
	// FaultCrashBefore ends the process before the effect, and FaultCrashAfter ends the process after the effect.
	FaultCrashBefore Fault = "crash-before"
	FaultCrashAfter  Fault = "crash-after"
	// FaultRefused means that the process gets an error, and the effect does not happen.
	FaultRefused Fault = "refused"
	// FaultLost means that the process gets an error, but the effect happens.
	FaultLost Fault = "lost"
	// FaultLate means that the process gets an error, and the effect happens later. This is possible only for cloud
	// calls. For other effects, use FaultLost.
	FaultLate Fault = "late"
	// FaultConflict means that another client has changed the object. FaultThrottled means that there were too many
	// requests, and says when to retry. FaultDenied means that the request is forbidden. None of these effects
	// happens.
	FaultConflict  Fault = "conflict"
	FaultThrottled Fault = "throttled"
	FaultDenied    Fault = "denied"
)

// These faults begin at an effect.
const (
	// FaultLongDenied means that all requests of the process with the same verb and kind are forbidden for a time of
	// deniedFor.
	FaultLongDenied Fault = "denied-for-long"
	// Restart1, Restart3 and Restart9 crash the process before the effect. After the restart, the first list of each
	// kind lacks the last 1, 3 or 9 changes.
	Restart1 Fault = "restart-1-back"
	Restart3 Fault = "restart-3-back"
	Restart9 Fault = "restart-9-back"
	// FaultUnobserved hides intermediate states from the process for the time hiddenFor: several changes of an object
	// look like one change.
	FaultUnobserved Fault = "unobserved"
	// FaultTimeJumps suspends the hosts of all processes during the effect, so that time jumps forward.
	FaultTimeJumps Fault = "time-jumps"
	// FaultClockBack sets back the wall clock of the process's host for good. The scenario clocks-differ covers
	// clocks that are ahead.
	FaultClockBack Fault = "clock-back"
	// FaultInFlight means that the process loses its Lease while this request is in flight. The next leader works for
	// a while before the request arrives. The closed fence rejects all later requests of the process.
	FaultInFlight Fault = "in-flight"
	// FaultTwoLeaders suspends the host of the process before the effect, while another process becomes the leader
	// and works. The first process then continues with its old knowledge. This process may write and call the cloud
	// until its fence closes.
	FaultTwoLeaders Fault = "two-leaders"

	// freezePrefix and relistPrefix begin the names of two kinds of faults. The rest of such a name is the kind of
	// the objects in a cache. This cache receives no changes for the time frozenFor. After that, a cache with a
	// "freeze" fault receives the missed changes. A cache with a "relist" fault receives a new list.
	freezePrefix = "freeze-"
	relistPrefix = "relist-"
)

// These are the durations of disturbances.
const (
	deniedFor = 40 * time.Second
	hiddenFor = 2 * time.Minute
	frozenFor = 40 * time.Second
	jump      = 5 * time.Minute
	setBack   = 2 * time.Minute
	// renewDeadline and leaseDuration equal those of process.Config. A suspended leader may consider itself the leader
	// for renewDeadline. Another process is elected after leaseDuration. inFlight is how long a request is in flight.
	renewDeadline = 10 * time.Second
	leaseDuration = 15 * time.Second
	// fencedWait is how long a process exists after its fence has closed.
	fencedWait = 3 * time.Second
	inFlight   = 20 * time.Second
	// retryAfter is how long a throttled client must wait.
	retryAfter = 5 * time.Second
)

// faultsOf returns the faults that an effect can have in random runs. A crash after a read is not in the result,
// because it has the same consequences as a crash before the next effect.
func faultsOf(e Effect) []Fault {
	switch {
	case e.Reads:
		return []Fault{FaultCrashBefore, FaultRefused}
	case e.Cloud:
		return []Fault{FaultCrashBefore, FaultCrashAfter, FaultRefused, FaultLost, FaultLate}
	}
	return []Fault{FaultCrashBefore, FaultCrashAfter, FaultRefused, FaultLost}
}

// everyFaultOf returns all faults that a plan can contain for an effect. cached contains the kinds in the process's
// cache.
func everyFaultOf(e Effect, cached []string) []Fault {
	out := append(faultsOf(e), FaultThrottled, Restart1, Restart3, Restart9, FaultUnobserved, FaultTimeJumps,
		FaultClockBack, FaultTwoLeaders)
	// The permission to read tokens does not change during a run. A provider without this permission creates no tokens.
	if !(e.Reads && e.Kind == "Secret" && strings.HasPrefix(e.Name, "kube-system/")) {
		out = append(out, FaultDenied, FaultLongDenied)
	}
	// Creations, reads, and deletions without a resource version have no precondition, so they cannot conflict.
	if e.Cloud && !e.Reads || e.HasPrecondition || strings.HasPrefix(e.Verb, "update") || strings.HasPrefix(e.Verb, "patch") {
		out = append(out, FaultConflict)
	}
	// If a bootstrap token is created late, the token may still exist after its machine has joined. In a real cluster,
	// Kubernetes removes an expired token. The simulation has no such controller.
	if !e.Reads && !(e.Verb == "create" && e.Kind == "Secret") {
		out = append(out, FaultInFlight)
	}
	for _, kind := range cached {
		out = append(out, Fault(freezePrefix+kind), Fault(relistPrefix+kind))
	}
	return out
}

func (p *Process) inject(f Fault, e Effect) {
	w := p.world
	w.breakFleet(f)
	switch f {
	case FaultCrashBefore:
		p.die()
	case Restart1, Restart3, Restart9:
		p.rewind = map[Fault]int{Restart1: 1, Restart3: 3, Restart9: 9}[f]
		p.die()
	case FaultLongDenied:
		p.denials = append(slices.Clip(p.denials), denial{e.Verb, e.Kind, w.clock.at.Add(deniedFor)})
	case FaultUnobserved:
		for _, v := range p.views() {
			v.mergedUntil = w.clock.at.Add(hiddenFor)
		}
	case FaultTimeJumps:
		w.pass(jump)
		w.safety.slept = append(w.safety.slept, w.clock.at)
	case FaultClockBack:
		p.clock.behind += setBack
	case FaultInFlight:
		w.lateWrites = true
		w.depose(p)
		w.letOthersAct(p, inFlight)
		p.until = w.clock.at
	case FaultTwoLeaders:
		w.depose(p)
		w.letOthersAct(p, leaseDuration)
		p.until = w.clock.at.Add(renewDeadline)
	default:
		if kind, ok := strings.CutPrefix(string(f), freezePrefix); ok {
			p.freeze(kind, false)
		} else if kind, ok := strings.CutPrefix(string(f), relistPrefix); ok {
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

func (w *World) faultsLast() bool {
	if w.election != nil || len(w.repairs) > 0 {
		return true
	}
	for _, p := range w.processes {
		if p.isFormer && !p.dead {
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

// denial selects requests of a process that the API server refuses for some time.
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

func (p *Process) errorOf(f Fault, e Effect) error {
	if err := p.world.webhookRefuses(e); err != nil {
		return err
	}
	if f == NoFault && p.denied(e) {
		p.world.disturbed = p.world.clock.at
		f = FaultDenied
	}
	resource := schema.GroupResource{Resource: strings.ToLower(e.Kind) + "s"}
	switch {
	case f == FaultRefused:
		return errNoAnswer
	case f == FaultConflict && e.Cloud:
		return provider.Errorf(provider.Aborted, "another operation is in progress")
	case f == FaultConflict:
		return apierrors.NewConflict(resource, e.Name, fmt.Errorf("the object has been modified"))
	case f == FaultThrottled && e.Cloud:
		return &provider.Error{Code: provider.Throttled, Message: "slow down", RetryAfter: retryAfter}
	case f == FaultThrottled:
		return apierrors.NewTooManyRequests("slow down", int(retryAfter/time.Second))
	case (f == FaultDenied || f == FaultLongDenied) && e.Cloud:
		return provider.Errorf(provider.PermissionDenied, "not allowed")
	case f == FaultDenied || f == FaultLongDenied:
		return apierrors.NewForbidden(resource, e.Name, fmt.Errorf("not allowed"))
	}
	return nil
}
