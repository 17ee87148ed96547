package disruption

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/freshness"
	"machinist.dev/machinist/internal/platform/keylock"
)

// forgetWaiting is how long after it last asked somebody still counts as waiting. Who waits asks at least every
// DeniedPoll.
const forgetWaiting = 3 * DeniedPoll

// DeniedPoll is how often who waits for room asks again without an event.
const DeniedPoll = 30 * time.Second

// Options are the dependencies of a Ledger.
type Options struct {
	// Client reads Machines and budgets from the cache, including this process's own writes.
	Client client.Reader
	// Live reads the control cluster itself.
	Live  client.Reader
	Clock clock.PassiveClock
	// CacheVersion returns the resource version up to which Client's cache of Machines is complete, "" if that is not
	// known: then every grant counts a live list.
	CacheVersion func() string
}

// Ledger is where all controllers of a process ask before they disrupt a machine. It counts one grant after the other.
// A nil Ledger grants everything.
//
// All that outlasts the process is in the Machines. The Ledger itself remembers what it granted until that is written,
// and who waits.
type Ledger struct {
	Options
	// granting is locked, for a namespace, from the count of a Grant to its record. No other lock is held while it reads
	// from the API server, so that neither another namespace nor a reader waits for that.
	granting   keylock.Locks
	mu         sync.Mutex
	namespaces map[string]*record
}

// record is what is remembered of a namespace.
type record struct {
	// cache says whether the cache of machines may be trusted, budgets that of budgets.
	cache, budgets freshness.Tracker
	// granted are machines whose disruption is not written yet. It is true for those of which nobody knows whether it was.
	granted map[types.UID]bool
	waiting map[Asker]*waiting
	// parsed are the budgets as they were last understood.
	parsed map[types.UID]parsed
	// used is when the record was last needed.
	used time.Time
}

// forgetNamespace is how long a record is kept that is not needed, such as that of a namespace that was deleted. The
// next grant in the namespace then counts a live list.
const forgetNamespace = time.Hour

// Asker is the object whose controller asks: a MachineSet or a MachineDeployment.
type Asker struct {
	Kind string
	types.NamespacedName
}

// String returns kind, namespace and name.
func (a Asker) String() string { return a.Kind + " " + a.NamespacedName.String() }

// waiting are the candidates of somebody that were denied, and those that were not and are about to be disrupted.
type waiting struct {
	lastAsked       time.Time
	denied, planned []Candidate
}

// candidates are all that leave no room for what is less urgent.
func (w *waiting) candidates() []Candidate { return slices.Concat(w.denied, w.planned) }

// parsed is a budget of a generation.
type parsed struct {
	generation int64
	budget     *Budget
}

// New returns a Ledger.
func New(o Options) *Ledger {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Ledger{Options: o, namespaces: map[string]*record{}}
}

// Concerns reports whether any of the machines, all of one namespace, may be denied: there are budgets, or may be,
// or one is exempt.
func (l *Ledger) Concerns(ctx context.Context, namespace string, machines []*v1beta1.Machine) (bool, error) {
	if l == nil {
		return false, nil
	}
	for _, m := range machines {
		if _, exempt := m.Annotations[v1beta1.AnnotationDoNotDisrupt]; exempt {
			return true, nil
		}
	}
	if trusts, _ := l.trustsBudgets(namespace); !trusts {
		return true, nil
	}
	budgets, err := l.readBudgets(ctx, namespace)
	return len(budgets) > 0, err
}

// Check returns which of the asker's candidates may be disrupted now. It grants nothing. After a write of unknown
// outcome it counts a live list as Grant does: otherwise a machine whose disruption was not written would take room for
// ever.
func (l *Ledger) Check(ctx context.Context, asker Asker, candidates []Candidate) (may []Candidate,
	denied []Denial, err error) {
	if l == nil || len(candidates) == 0 {
		return candidates, nil, nil
	}
	machinesOf := l.cached
	if l.unsure(asker.Namespace) {
		machinesOf = l.confirmed
	}
	budgets, machines, err := l.count(ctx, asker.Namespace, machinesOf)
	if err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.view(asker.Namespace, budgets, machines)
	may, denied = v.Ask(l.sinceAsked(asker, candidates), l.others(asker.Namespace, asker, v))
	return may, denied, nil
}

// Waits records which candidates somebody wants to disrupt and may not, and which it may and will with its next writes:
// those keep their turn if something comes between. It replaces what was recorded of the asker before. None ends the
// waiting.
func (l *Ledger) Waits(asker Asker, denied []Denial, planned ...Candidate) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.record(asker.Namespace)
	if len(denied)+len(planned) == 0 {
		delete(r.waiting, asker)
		return
	}
	now := l.Clock.Now()
	candidates := make([]Candidate, 0, len(denied)+len(planned))
	for _, d := range denied {
		candidates = append(candidates, d.Candidate)
	}
	candidates = l.sinceAsked(asker, append(candidates, planned...))
	for i := range candidates {
		if c := &candidates[i]; c.asked.IsZero() || c.asked.After(now) {
			c.asked = now
		}
	}
	r.waiting[asker] = &waiting{now, candidates[:len(denied)], candidates[len(denied):]}
}

// sinceAsked returns the candidates with the times since when they wait.
func (l *Ledger) sinceAsked(asker Asker, candidates []Candidate) []Candidate {
	candidates = slices.Clone(candidates)
	before := l.record(asker.Namespace).waiting[asker]
	if before == nil {
		return candidates
	}
	asked := make(map[types.UID]time.Time, len(before.denied)+len(before.planned))
	for _, c := range before.candidates() {
		asked[c.Machine.UID] = c.asked
	}
	for i := range candidates {
		candidates[i].asked = asked[candidates[i].Machine.UID]
	}
	return candidates
}

// Waiting returns who waits for room in a namespace.
func (l *Ledger) Waiting(namespace string) (askers []Asker) {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.namespaces[namespace]; r != nil {
		askers = slices.DeleteFunc(r.askers(), func(a Asker) bool { return len(r.waiting[a].denied) == 0 })
	}
	return askers
}

// Requests returns requests for the objects of a kind that wait in a namespace.
func (l *Ledger) Requests(kind, namespace string) (requests []reconcile.Request) {
	for _, asker := range l.Waiting(namespace) {
		if asker.Kind == kind {
			requests = append(requests, reconcile.Request{NamespacedName: asker.NamespacedName})
		}
	}
	return requests
}

// Blocked returns how many machines wait for room, or until they are no longer exempt, by reason; every reason is
// there.
func (l *Ledger) Blocked() map[v1beta1.DisruptionReason]int {
	blocked := make(map[v1beta1.DisruptionReason]int, len(v1beta1.DisruptionReasons))
	for _, reason := range v1beta1.DisruptionReasons {
		blocked[reason] = 0
	}
	if l == nil {
		return blocked
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.Clock.Now()
	for _, r := range l.namespaces {
		for _, w := range r.waiting {
			if now.Sub(w.lastAsked) > forgetWaiting {
				continue
			}
			for _, c := range w.denied {
				blocked[c.Reason]++
			}
		}
	}
	return blocked
}

// askers returns those that have candidates recorded, by name.
func (r *record) askers() []Asker {
	return slices.SortedFunc(maps.Keys(r.waiting), func(a, b Asker) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
}

// Grant returns which of the candidates, all of one namespace, may be disrupted, and takes their room. The caller must
// call Settle for each of these, whatever comes of it. The count is exact: the first one of a process, and the first
// after a write of unknown outcome, is of a live list.
func (l *Ledger) Grant(ctx context.Context, asker Asker, candidates []Candidate) ([]Candidate, error) {
	if l == nil || len(candidates) == 0 {
		return candidates, nil
	}
	defer l.granting.Lock(asker.Namespace)()
	budgets, machines, err := l.count(ctx, asker.Namespace, l.confirmed)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.view(asker.Namespace, budgets, machines)
	granted, _ := v.Ask(l.sinceAsked(asker, candidates), l.others(asker.Namespace, asker, v))
	r := l.record(asker.Namespace)
	for _, c := range granted {
		r.granted[c.Machine.UID] = false
	}
	return granted, nil
}

// Settle records what came of a grant: the error of the write, nil also if there was none.
func (l *Ledger) Settle(m *v1beta1.Machine, err error) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.record(m.Namespace)
	if _, granted := r.granted[m.UID]; !granted {
		return
	}
	if freshness.Ambiguous(err) {
		r.granted[m.UID] = true
		r.cache.Invalidate()
		return
	}
	delete(r.granted, m.UID) // What was written is in the cache that the next count reads.
}

// record returns what is remembered of a namespace.
func (l *Ledger) record(namespace string) *record {
	now := l.Clock.Now()
	r := l.namespaces[namespace]
	if r == nil {
		maps.DeleteFunc(l.namespaces, func(_ string, r *record) bool {
			return len(r.granted) == 0 && now.Sub(r.used) > forgetNamespace
		})
		r = &record{granted: map[types.UID]bool{}, waiting: map[Asker]*waiting{}}
		l.namespaces[namespace] = r
	}
	r.used = now
	return r
}

// others returns the candidates of others that have not had their turn, as the view has their machines.
func (l *Ledger) others(namespace string, asker Asker, v *View) (others []Candidate) {
	r := l.namespaces[namespace]
	if r == nil || len(r.waiting) == 0 {
		return nil
	}
	now := l.Clock.Now()
	machines := make(map[types.UID]*v1beta1.Machine, len(v.machines))
	for _, m := range v.machines {
		machines[m.UID] = m
	}
	for _, who := range r.askers() {
		w := r.waiting[who]
		if waited := now.Sub(w.lastAsked); waited > forgetWaiting || waited < 0 {
			delete(r.waiting, who)
			continue
		}
		if who == asker {
			continue
		}
		for _, c := range w.candidates() {
			if m := machines[c.Machine.UID]; m != nil {
				c.Machine = m
				others = append(others, c)
			}
		}
	}
	return others
}
