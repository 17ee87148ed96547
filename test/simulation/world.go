// Package simulation runs the controllers in a deterministic world with one thread, one seed, API servers, a cloud,
// kubelets and its own clock. The world runs the unchanged production reconcilers. Random choices decide which actor
// acts next, how late each cache is, what fails, and when a process crashes.
//
// A reconciliation is not atomic. Other actors may act before each effect of a reconciliation. A key is reconciled only
// after an event, after its own requeue, or after a restart of the process. So the simulation finds missing triggers.
package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/controllermanager"
)

// World is the complete state of a run.
type World struct {
	scheme          *runtime.Scheme
	clock           *clock
	control, target *apiserver.Server
	cloud           *Cloud
	processes       []*Process
	frames          []*frame

	source     *rand.PCG
	random     *rand.Rand
	faults     Faults
	laziness   map[string]int
	script     []Action
	autoscaler *autoscaler
	safety     safetyState
	legacy     *legacy
	outside    outsideProblems
	repairs    []repair
	// apps contains the workloads on the nodes. volumes contains their attached volumes, or is nil.
	apps    []app
	volumes *controllermanager.Volumes

	oracle        oracle
	secrets       *secrets
	agentFailures int

	// lateWrites is true after a write of a former leader was late, so that a set may have had too many machines.
	lateWrites bool
	// skewed is true after something happened because of which the distribution of a placement may exceed maxSkew.
	skewed bool
	// rebalanced is the last time at which a machine was marked for replacement to restore a distribution.
	rebalanced time.Time

	broken       int
	machinesMade int

	effects int
	crashes int
	steps   int
	names   int
	lives   int
	// deposedCount counts how often a process got a successor while it was still running.
	deposedCount int
	// mustEnd is the time at which the run must have reached its end, even if faults or users act until then.
	mustEnd                        time.Time
	stepsAtFault, stepsWhenSettled int
	lastAction                     time.Time
	lastFault                      time.Time
	behind                         time.Duration
	disturbed                      time.Time
	// path is a hash of all choices, to compare two runs.
	path uint64
	// If story is not nil, it receives a line for each event.
	story func(string)
	// hasPlan is true if a plan determines the faults. Otherwise, the faults are random.
	hasPlan   bool
	corrupted *corrupted
	// warnings contains the warning events of all objects.
	warnings map[string]bool
	election *election
	// onStored, if not nil, is called with each Machine that a process of Machinist writes.
	onStored func(*v1beta1.Machine)
	// betweenSteps is called between two steps while no reconciliation is in progress, unless it is nil.
	betweenSteps func()
}

// Action is one step of a user in the script of a scenario.
type Action struct {
	Name string
	Do   func(ctx context.Context, w *World, c client.Client) error
	// If Condition is not nil, it must return true before the action happens. The world does not call Condition until
	// MinDelay has passed.
	Condition func(w *World) bool
	// MinDelay is the minimum time after the previous action.
	MinDelay time.Duration
}

// Scheme returns a scheme with all kinds that exist in a world.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1beta1.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	return scheme
}

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// New returns an empty world with a running manager and provider.
func New(scheme *runtime.Scheme, optionalReconcilers ...Controllers) (*World, error) {
	w := &World{scheme: scheme, warnings: map[string]bool{}, clock: &clock{epoch}, disturbed: epoch,
		source: rand.NewPCG(0, 0)}
	w.random = rand.New(w.source)
	w.control, w.target = apiserver.New(scheme, w.clock.Now), apiserver.New(scheme, w.clock.Now)
	w.cloud = &Cloud{now: w.clock.Now, Boot: 20 * time.Second, Shutdown: 10 * time.Second, Settle: time.Minute,
		tokens: map[string]token{}, createdCount: map[uid]int{}, asked: map[string]string{}}
	w.secrets = newSecrets(w)
	for _, r := range optionalReconcilers {
		w.enable(r)
	}
	w.oracle.begin(w)
	return w, w.startAll()
}

func (w *World) startAll() error {
	for _, name := range []string{Manager, Provider} {
		p, err := w.start(name, 0, func() int { return 0 })
		if err != nil {
			return err
		}
		w.processes = append(w.processes, p)
	}
	return nil
}

func (w *World) hand(s *apiserver.Server) client.Client { return s.Client(person) }

const person = "person"

func (w *World) kubelet() client.Client { return w.target.Client("kubelet") }

func (w *World) logf(format string, args ...any) {
	if w.story != nil {
		w.story(fmt.Sprintf("%9.3fs %*s%s", w.clock.Since(epoch).Seconds(), 2*len(w.frames), "",
			fmt.Sprintf(format, args...)))
	}
}

type choice struct {
	name string
	do   func() error
}

// step carries out one of the possible choices, or returns false if there is none. nested means that a reconciliation
// is in progress. During a reconciliation, no time passes, and controllers that wait for a response do not run.
func (w *World) step(nested bool) (bool, error) {
	if w.betweenSteps != nil && len(w.frames) == 0 {
		w.betweenSteps()
	}
	w.removeFormer()
	w.steps++
	choices := w.possible(nested)
	if len(choices) == 0 {
		return false, nil
	}
	i := w.random.IntN(len(choices))
	w.path = (w.path ^ uint64(i+len(choices)<<8)) * 1099511628211
	if err := choices[i].do(); err != nil {
		return true, fmt.Errorf("%s: %w", choices[i].name, err)
	}
	w.check()
	return true, w.oracle.failure()
}

// possible returns the choices for the next step. If a cache is late, it receives its next change only if there is no
// other choice.
func (w *World) possible(nested bool) []choice {
	var out, late []choice
	for _, p := range w.processes {
		out, late = w.possibleOf(p, nested, out, late)
	}
	for i := range w.control.PendingSteps() {
		out = append(out, choice{"control: background", func() error {
			w.logf("control cluster: %s", w.control.Step(i))
			return nil
		}})
	}
	if !w.safety.targetUnreachable() {
		out = append(out, w.kubelets()...)
	}
	out = append(out, w.safetyChoices()...)
	out = append(out, w.legacy.possible()...)
	out = append(out, w.outsideChoices()...)
	out = append(out, w.repairChoices()...)
	out = append(out, w.election.possible()...)
	out, late = w.autoscaler.possible(out, late)
	if len(w.script) > 0 && !w.clock.at.Before(w.lastAction.Add(w.script[0].MinDelay)) &&
		(w.script[0].Condition == nil || w.script[0].Condition(w)) {
		out = append(out, choice{"action", w.doNext})
	}
	if len(out) == 0 && len(late) > 0 && !nested && w.behind < longestBehind && w.random.IntN(3) == 0 {
		return []choice{{"time passes while caches are late", w.fallBehind}}
	}
	if len(out) == 0 {
		return late
	}
	if !nested && w.random.IntN(40) == 0 {
		// The world may also let some time pass in this step.
		out = append(out, choice{"time passes", func() error {
			w.pass(time.Duration(w.random.IntN(2000)) * time.Millisecond)
			return nil
		}})
	}
	return out
}

func (w *World) possibleOf(p *Process, nested bool, out, late []choice) (_, _ []choice) {
	if p.suspended || p.isFormer && p.dead {
		return out, late
	}
	if p.dead {
		if w.safety.links[toControl].down() {
			return out, late // No process can be elected.
		}
		if w.election.needsElection(p.name) {
			return out, late
		}
		return append(out, choice{"restart " + p.name, func() error { return w.restart(p) }}), late
	}
	for _, v := range p.views() {
		if v.behind() {
			a := choice{"cache", func() error { return w.show(p, v) }}
			if l := w.laziness[p.name+v.gvk.Kind]; l > 1 && w.random.IntN(l) > 0 {
				late = append(late, a)
			} else {
				out = append(out, a)
			}
		}
		for _, s := range v.subscriptions {
			if len(s.events) > 0 {
				out = append(out, choice{"event", func() error {
					s.handle(logr.NewContext(context.Background(), logr.Discard()))
					return nil
				}})
			}
		}
	}
	for _, c := range p.controllers {
		if len(c.queue.ready) > 0 && !(nested && w.busy(c)) {
			out = append(out, choice{c.table.Name, func() error { c.run(w.random.IntN(len(c.queue.ready))); return nil }})
		}
	}
	return out, late
}

func (w *World) show(p *Process, v *view) error {
	if w.story != nil {
		if c := v.backlog[0]; v.mergedUntil.IsZero() {
			w.logf("%s sees %s %s %s", p.name, c.Type, c.GVK.Kind, c.Key)
		} else {
			w.logf("%s sees the current objects of kind %s", p.name, c.GVK.Kind)
		}
	}
	return v.advance()
}

func (w *World) busy(c *controller) bool {
	for _, f := range w.frames {
		if f.controller == c {
			return true
		}
	}
	return false
}

func (w *World) interleave() {
	if len(w.frames) > 2 || w.random.IntN(4) > 0 {
		return
	}
	for range 1 + w.random.IntN(3) {
		if any, err := w.step(true); err != nil {
			w.oracle.broken(err)
			return
		} else if !any {
			return
		}
	}
}

func (w *World) doNext() error {
	action := w.script[0]
	w.script = w.script[1:]
	w.disturbed, w.lastAction = w.clock.at, w.clock.at
	w.logf("person: %s", action.Name)
	err := action.Do(context.Background(), w, w.hand(w.control))
	if err != nil && w.corrupted != nil && w.corrupted.asks != nil {
		w.logf("the action failed: %v", err) // The corruption may be the cause.
		return nil
	}
	return err
}

func (w *World) restart(dead *Process) error {
	w.logf("%s starts again", dead.name)
	p, err := w.start(dead.name, dead.clock.behind, w.lateness(dead))
	if err != nil {
		return err
	}
	for i := range w.processes {
		if w.processes[i] == dead {
			w.processes[i] = p
		}
	}
	return nil
}

// lateness determines how out of date the first lists are after a process has died. The returned function returns how
// many changes a first list of the successor lacks.
func (w *World) lateness(dead *Process) func() int {
	return func() int {
		if dead.rewind > 0 {
			return dead.rewind
		}
		if w.random.IntN(3) > 0 {
			return 0
		}
		return w.random.IntN(8)
	}
}

func (w *World) pass(d time.Duration) {
	w.clock.at = w.clock.at.Add(d)
	w.cloud.elapse(w)
	w.legacy.elapse()
	for _, p := range w.processes {
		for _, c := range p.controllers {
			c.queue.due()
		}
		for _, v := range p.views() {
			if p.suspended {
				continue
			}
			if err := v.elapse(w); err != nil {
				w.oracle.broken(err)
			}
			if d >= bookmarks && v.frozenUntil.IsZero() && !v.behind() {
				v.seen = v.server.Revision()
			}
		}
		p.probeDue()
	}
}

func (w *World) fallBehind() error {
	d := time.Duration(1+w.random.IntN(15)) * time.Second
	if at, waits := w.next(); waits {
		d = max(time.Millisecond, min(d, at.Sub(w.clock.at)))
	}
	w.behind += d
	w.disturbed = w.clock.at.Add(d)
	w.pass(d)
	return nil
}

// longestBehind limits how long caches may be behind the API server in one run, in total.
const longestBehind = time.Minute

// bookmarks is how long the API server sends no events on a watch before it sends a bookmark.
const bookmarks = time.Minute

func (w *World) next() (at time.Time, any bool) {
	consider := func(t time.Time, ok bool) {
		if ok && (!any || t.Before(at)) {
			at, any = t, true
		}
	}
	consider(w.cloud.next())
	consider(w.podsDue())
	if !w.safety.targetUnreachable() {
		consider(w.manager().Due())
	}
	consider(w.safetyDue())
	if len(w.script) > 0 && w.script[0].MinDelay > 0 {
		at := w.lastAction.Add(w.script[0].MinDelay)
		consider(at, at.After(w.clock.at))
	}
	consider(w.autoscaler.next())
	consider(w.election.next())
	consider(w.nextFlap())
	consider(w.legacy.next())
	consider(w.outsideDue())
	consider(w.nextRepair())
	for _, p := range w.processes {
		for _, c := range p.controllers {
			consider(c.queue.next())
		}
		for _, v := range p.views() {
			if frozen := !v.frozenUntil.IsZero(); frozen && v.frozenUntil.After(w.clock.at) {
				consider(v.frozenUntil, true)
			} else if frozen && !p.suspended && !v.unreachable() {
				consider(w.clock.at.Add(time.Millisecond), true) // The time was up while the cluster was unreachable.
			}
		}
		for _, at := range []time.Time{p.until, p.until.Add(fencedWait)} {
			consider(at, at.After(w.clock.at))
		}
	}
	return at, any
}
