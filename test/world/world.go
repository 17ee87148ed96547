// Package world runs the controllers in a deterministic world: one thread, one seed, an API server, a cloud, kubelets and a
// clock of its own. The production reconcilers run in it as they are; what is chosen at random is who acts next, how late
// each cache is, what fails and who crashes when.
//
// A pass of a reconciler is not atomic: at each of its effects others may act first. A key is looked at only when an event,
// its own request or a restart of its process asks for it, so that a wake-up that is missing is found.
package world

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/world/store"
)

// World is one run.
type World struct {
	scheme *runtime.Scheme
	clock  *clock
	// control and target are the API servers of the two clusters.
	control, target *store.Server
	cloud           *Cloud
	processes       []*Process
	frames          []*frame

	random *rand.Rand
	faults Faults
	// laziness makes some caches later than others.
	laziness map[string]int
	// script is what people do, in this order.
	script []Deed
	// autoscaler is one of the actors outside; nil where there is none.
	autoscaler *autoscaler

	oracle oracle
	// agentFailures is how often agents on nodes have failed.
	agentFailures int

	effects int
	crashes int
	steps   int
	names   int
	// deedAt is when a person last did something.
	deedAt time.Time
	// behind is for how long caches have been late.
	behind time.Duration
	// disturbed is when somebody outside last did something, or something last failed.
	disturbed time.Time
	// path is a digest of all choices, by which two runs are compared.
	path uint64
	// story takes what happens, line by line; nil where nobody listens.
	story func(string)
}

// Deed is something that a person does.
type Deed struct {
	Name string
	Do   func(ctx context.Context, w *World, c client.Client) error
	// After says when it may be done, beyond what came before it; nil is at any time.
	After func(w *World) bool
	// Wait is how long after the deed before it it may be done at the earliest.
	Wait time.Duration
}

// Scheme knows the kinds that there are in a world.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1beta1.AddToScheme(scheme))
	return scheme
}

// epoch is when each world begins.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// New returns an empty world in which both processes run.
func New(scheme *runtime.Scheme) (*World, error) {
	w := &World{scheme: scheme, clock: &clock{epoch}, disturbed: epoch, random: rand.New(rand.NewPCG(0, 0))}
	w.control, w.target = store.New(scheme, w.clock.Now), store.New(scheme, w.clock.Now)
	w.cloud = &Cloud{now: w.clock.Now, Boot: 20 * time.Second, Shutdown: 10 * time.Second, Settle: time.Minute, tokens: map[string]token{}, made: map[uid]int{}}
	w.oracle.begin(w)
	return w, w.startAll()
}

// Fork returns a copy of a world between two steps, down to what its processes remember, in which other choices are made.
func (w *World) Fork(seed uint64) (*World, error) {
	f := &World{scheme: w.scheme, clock: &clock{w.clock.at}, disturbed: w.clock.at, deedAt: w.clock.at, random: rand.New(rand.NewPCG(seed, 0)), names: w.names, agentFailures: w.agentFailures}
	f.control, f.target = w.control.Fork(f.clock.Now), w.target.Fork(f.clock.Now)
	f.cloud = w.cloud.fork(f.clock.Now)
	f.oracle.begin(f)
	for _, p := range w.processes {
		forked, err := p.fork(f)
		if err != nil {
			return nil, err
		}
		f.processes = append(f.processes, forked)
	}
	var err error
	f.autoscaler, err = w.autoscaler.fork(f)
	return f, err
}

func (w *World) startAll() error {
	for _, name := range []string{Manager, Provider} {
		p, err := w.start(name, func() int { return 0 })
		if err != nil {
			return err
		}
		w.processes = append(w.processes, p)
	}
	return nil
}

// hand is a client of somebody outside: a person, a test.
func (w *World) hand(s *store.Server) client.Client { return s.Client("person") }

func (w *World) kubelet() client.Client { return w.target.Client("kubelet") }

// tell adds a line to the story.
func (w *World) tell(format string, args ...any) {
	if w.story != nil {
		w.story(fmt.Sprintf("%9.3fs %*s%s", w.clock.Since(epoch).Seconds(), 2*len(w.frames), "", fmt.Sprintf(format, args...)))
	}
}

// action is one of the things that may happen next.
type action struct {
	name string
	do   func() error
}

// step lets one thing happen, and reports whether there was one. nested is true while a pass is under way: then time stands
// still, and no controller is called that is waiting for an answer itself.
func (w *World) step(nested bool) (bool, error) {
	w.steps++
	actions := w.possible(nested)
	if len(actions) == 0 {
		return false, nil
	}
	i := w.random.IntN(len(actions))
	w.path = (w.path ^ uint64(i+len(actions)<<8)) * 1099511628211
	if err := actions[i].do(); err != nil {
		return true, fmt.Errorf("%s: %w", actions[i].name, err)
	}
	w.judge()
	return true, w.oracle.verdict()
}

// possible returns what may happen now. A late cache stays late unless nothing else can happen.
func (w *World) possible(nested bool) []action {
	var out, late []action
	for _, p := range w.processes {
		out, late = w.possibleOf(p, nested, out, late)
	}
	for i := range w.control.Pending() {
		out = append(out, action{"control: background", func() error { w.tell("control cluster: %s", w.control.Step(i)); return nil }})
	}
	out = append(out, w.kubelets()...)
	out, late = w.autoscaler.possible(out, late)
	if len(w.script) > 0 && !w.clock.at.Before(w.deedAt.Add(w.script[0].Wait)) && (w.script[0].After == nil || w.script[0].After(w)) {
		out = append(out, action{"deed", w.doNext})
	}
	if len(out) == 0 && len(late) > 0 && !nested && w.behind < longestBehind && w.random.IntN(3) == 0 {
		return []action{{"time passes while caches are late", w.fallBehind}}
	}
	if len(out) == 0 {
		return late
	}
	if !nested && w.random.IntN(40) == 0 {
		// Time may pass although there is something to do.
		out = append(out, action{"time passes", func() error { w.pass(time.Duration(w.random.IntN(2000)) * time.Millisecond); return nil }})
	}
	return out
}

func (w *World) possibleOf(p *Process, nested bool, out, late []action) (_, _ []action) {
	if p.dead {
		return append(out, action{"restart " + p.name, func() error { return w.restart(p) }}), late
	}
	for _, v := range p.views() {
		if v.behind() {
			a := action{"cache", func() error { return w.show(p, v) }}
			if l := w.laziness[p.name+v.gvk.Kind]; l > 1 && w.random.IntN(l) > 0 {
				late = append(late, a)
			} else {
				out = append(out, a)
			}
		}
		for _, s := range v.subscriptions {
			if len(s.events) > 0 {
				out = append(out, action{"event", func() error { s.handle(logr.NewContext(context.Background(), logr.Discard())); return nil }})
			}
		}
	}
	for _, c := range p.controllers {
		if len(c.queue.ready) > 0 && !(nested && w.busy(c)) {
			out = append(out, action{c.table.Name, func() error { c.run(w.random.IntN(len(c.queue.ready))); return nil }})
		}
	}
	return out, late
}

func (w *World) show(p *Process, v *view) error {
	if w.story != nil {
		c := v.backlog[0]
		w.tell("%s sees %s %s %s", p.name, c.Type, c.GVK.Kind, c.Key)
	}
	return v.advance()
}

// busy reports whether the controller waits for an answer.
func (w *World) busy(c *controller) bool {
	for _, f := range w.frames {
		if f.controller == c {
			return true
		}
	}
	return false
}

// interleave lets others act before a request of a pass arrives.
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

// doNext lets a person do the next deed. What the API server refuses is the person's problem.
func (w *World) doNext() error {
	deed := w.script[0]
	w.script = w.script[1:]
	w.disturbed, w.deedAt = w.clock.at, w.clock.at
	w.tell("person: %s", deed.Name)
	return deed.Do(context.Background(), w, w.hand(w.control))
}

// restart starts a process anew, from lists that may be late.
func (w *World) restart(dead *Process) error {
	w.tell("%s starts again", dead.name)
	p, err := w.start(dead.name, func() int {
		if w.random.IntN(3) > 0 {
			return 0
		}
		return w.random.IntN(8)
	})
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

// pass lets time pass.
func (w *World) pass(d time.Duration) {
	w.clock.at = w.clock.at.Add(d)
	w.cloud.elapse(w)
	for _, p := range w.processes {
		for _, c := range p.controllers {
			c.queue.due()
		}
		for _, v := range p.views() {
			if d >= bookmarks && !v.behind() {
				v.seen = v.server.Revision()
			}
		}
	}
}

// fallBehind lets time pass although there are changes that the caches do not show yet.
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

// longestBehind is for how long caches are late in one run, all in all.
const longestBehind = time.Minute

// bookmarks is how long a watch is quiet until the API server says up to where it is complete.
const bookmarks = time.Minute

// next returns when something is due.
func (w *World) next() (at time.Time, any bool) {
	consider := func(t time.Time, ok bool) {
		if ok && (!any || t.Before(at)) {
			at, any = t, true
		}
	}
	consider(w.cloud.next())
	if len(w.script) > 0 && w.script[0].Wait > 0 {
		at := w.deedAt.Add(w.script[0].Wait)
		consider(at, at.After(w.clock.at))
	}
	consider(w.autoscaler.next())
	for _, p := range w.processes {
		for _, c := range p.controllers {
			consider(c.queue.next())
		}
	}
	return at, any
}

// Bounds of a run. One that needs more does not converge.
const (
	maxSteps = 60_000
	// patience is how much of the world's time a run may take after the last deed and the last fault: less than a machine
	// may take to become a Node, so that it is not a timeout that sets things right, and more than the few waits after a
	// fault and the time in which a creation shows.
	patience = 15 * time.Minute
	// settleTime is how long the last numbers may take to be written down after the end was reached, and restTime how long a
	// world at rest is watched after that.
	settleTime, restTime = time.Minute, time.Hour
)

// Run lets things happen until everything is done and the end is reached, and then for a while more in which nothing may be
// written. wrong says what is missing to the end, "" if nothing is.
func (w *World) Run(wrong func(*World) string) error {
	for w.steps < maxSteps {
		any, err := w.step(false)
		if err != nil {
			return err
		}
		if any {
			continue
		}
		missing := wrong(w)
		if missing == "" && len(w.script) == 0 {
			return w.rest(wrong)
		}
		at, waits := w.next()
		switch {
		case !waits:
			return fmt.Errorf("everything is at rest, but %s", missing)
		case at.After(w.disturbed.Add(patience)):
			return fmt.Errorf("%s after the last disturbance, %s", patience, missing)
		}
		w.pass(max(at.Sub(w.clock.at), time.Millisecond))
	}
	return fmt.Errorf("no rest after %d steps: %s", maxSteps, wrong(w))
}

// rest watches a world in which everything is done.
func (w *World) rest(wrong func(*World) string) error {
	w.faults = nil
	if err := w.runFor(settleTime); err != nil {
		return err
	}
	control, target, changes := w.control.Revision(), w.target.Revision(), w.cloud.changes
	if err := w.runFor(restTime); err != nil {
		return err
	}
	if missing := wrong(w); missing != "" {
		return fmt.Errorf("the end was reached and did not last: %s", missing)
	}
	if control != w.control.Revision() || target != w.target.Revision() || changes != w.cloud.changes {
		return fmt.Errorf("%d and %d writes and %d calls of the cloud at rest: %s", w.control.Revision()-control, w.target.Revision()-target, w.cloud.changes-changes, w.oracle.last(control, target))
	}
	return nil
}

// runFor lets things happen for a time, and whatever follows from them at once.
func (w *World) runFor(d time.Duration) error {
	until := w.clock.at.Add(d)
	for w.steps < maxSteps {
		any, err := w.step(false)
		if err != nil {
			return err
		}
		if any {
			continue
		}
		at, waits := w.next()
		if !waits || at.After(until) {
			break
		}
		w.pass(max(at.Sub(w.clock.at), time.Millisecond))
	}
	return nil
}
