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

// waitingTimeout is how long the Ledger remembers a denied request. A controller repeats a denied request at least
// every DeniedPoll, so an older request is no longer of interest.
const waitingTimeout = 3 * DeniedPoll

// DeniedPoll is the time after which a controller repeats a denied request, if no event triggers it earlier.
const DeniedPoll = 30 * time.Second

// Options are the dependencies of a Ledger.
type Options struct {
	// Client reads Machines and budgets from the cache, including this process's own writes.
	Client client.Reader
	// LiveReader reads from the API server of the control cluster, without a cache.
	LiveReader client.Reader
	Clock      clock.PassiveClock
	// CacheVersion returns the resource version up to which Client's cache of Machines is complete, or "" if unknown.
	// With an unknown version, every grant uses a live list.
	CacheVersion func() string
}

// Ledger grants disruptions to all controllers of a process, one at a time. A nil Ledger grants everything.
//
// All permanent state is in the Machines. The Ledger remembers only the grants that are not written to Machines yet,
// and the denied requests of Askers.
type Ledger struct {
	Options
	// granting contains one lock for each namespace, which is held from the beginning to the end of Grant. No other
	// lock is held during API requests, so other namespaces and readers do not wait.
	granting   keylock.Locks
	mu         sync.Mutex
	namespaces map[string]*namespaceState
}

type namespaceState struct {
	cache, budgets freshness.Tracker
	// grants holds the UIDs of machines whose disruption was granted but is not yet visible in the Machine. The value
	// for a UID is true if it is unknown whether the write to the Machine succeeded.
	grants  map[types.UID]bool
	waiting map[Asker]*askerState
	parsed  map[types.UID]parsedBudget
	used    time.Time
}

// namespaceTimeout is how long the unused state of a namespace is kept. After its removal, the next grant in the
// namespace needs a live list.
const namespaceTimeout = time.Hour

// Asker is the object whose controller wants to disrupt machines: a MachineSet or a MachineDeployment.
type Asker struct {
	Kind string
	types.NamespacedName
}

// String returns kind, namespace and name.
func (a Asker) String() string { return a.Kind + " " + a.NamespacedName.String() }

// askerState holds the denied candidates of one Asker, and the candidates that the Asker is about to disrupt.
type askerState struct {
	lastAsked       time.Time
	denied, planned []Candidate
}

func (w *askerState) candidates() []Candidate { return slices.Concat(w.denied, w.planned) }

type parsedBudget struct {
	generation int64
	budget     *Budget
}

// New returns a Ledger.
func New(o Options) *Ledger {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Ledger{Options: o, namespaces: map[string]*namespaceState{}}
}

// MayDeny reports whether a disruption may be denied, because a machine is exempt, the namespace has budgets, or its
// budgets are not known yet. All machines must be in one namespace.
func (l *Ledger) MayDeny(ctx context.Context, namespace string, machines []*v1beta1.Machine) (bool, error) {
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

// Check returns which candidates may be disrupted now, without granting anything. If the outcome of a write is unknown,
// Check lists the machines live, as Grant does. Otherwise a grant that was never written to its Machine would count as
// a disruption forever.
func (l *Ledger) Check(ctx context.Context, asker Asker, candidates []Candidate) (may []Candidate,
	denied []Denial, err error) {
	if l == nil || len(candidates) == 0 {
		return candidates, nil, nil
	}
	machinesOf := l.cachedMachines
	if l.hasUnknownOutcome(asker.Namespace) {
		machinesOf = l.confirmedMachines
	}
	budgets, machines, err := l.count(ctx, asker.Namespace, machinesOf)
	if err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.view(asker.Namespace, budgets, machines)
	may, denied = v.Decide(l.withWaitTimes(asker, candidates), l.otherCandidates(asker.Namespace, asker, v))
	return may, denied, nil
}

// RecordWaiting records the candidates that were denied and those that the Asker disrupts next. These candidates keep
// their precedence. Each call replaces the record of the previous call. If both lists are empty, the Asker is removed
// from the waiting controllers.
func (l *Ledger) RecordWaiting(asker Asker, denied []Denial, planned ...Candidate) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.namespaceState(asker.Namespace)
	if len(denied)+len(planned) == 0 {
		delete(r.waiting, asker)
		return
	}
	now := l.Clock.Now()
	candidates := make([]Candidate, 0, len(denied)+len(planned))
	for _, d := range denied {
		candidates = append(candidates, d.Candidate)
	}
	candidates = l.withWaitTimes(asker, append(candidates, planned...))
	for i := range candidates {
		if c := &candidates[i]; c.firstDenial.IsZero() || c.firstDenial.After(now) {
			c.firstDenial = now
		}
	}
	r.waiting[asker] = &askerState{now, candidates[:len(denied)], candidates[len(denied):]}
}

// withWaitTimes sets when each candidate began to wait.
func (l *Ledger) withWaitTimes(asker Asker, candidates []Candidate) []Candidate {
	candidates = slices.Clone(candidates)
	before := l.namespaceState(asker.Namespace).waiting[asker]
	if before == nil {
		return candidates
	}
	asked := make(map[types.UID]time.Time, len(before.denied)+len(before.planned))
	for _, c := range before.candidates() {
		asked[c.Machine.UID] = c.firstDenial
	}
	for i := range candidates {
		candidates[i].firstDenial = asked[candidates[i].Machine.UID]
	}
	return candidates
}

// WaitingAskers returns the Askers in a namespace whose last request was denied for at least one machine.
func (l *Ledger) WaitingAskers(namespace string) (askers []Asker) {
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

// Requests returns reconcile requests for the controllers of the given kind and namespace that wait because the
// disruption of a machine was denied.
func (l *Ledger) Requests(kind, namespace string) (requests []reconcile.Request) {
	for _, asker := range l.WaitingAskers(namespace) {
		if asker.Kind == kind {
			requests = append(requests, reconcile.Request{NamespacedName: asker.NamespacedName})
		}
	}
	return requests
}

// CountBlocked counts, by the reason of the disruption, the machines whose disruption a budget or an exemption
// prevents now. Every possible reason is a key of the map.
func (l *Ledger) CountBlocked() map[v1beta1.DisruptionReason]int {
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
			if now.Sub(w.lastAsked) > waitingTimeout {
				continue
			}
			for _, c := range w.denied {
				blocked[c.Reason]++
			}
		}
	}
	return blocked
}

func (r *namespaceState) askers() []Asker {
	return slices.SortedFunc(maps.Keys(r.waiting), func(a, b Asker) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
}

// Grant returns the candidates that the caller may disrupt, and counts them as disrupted from now on. All candidates
// must be in one namespace. The caller must call Settle for each returned candidate, even if the caller does not
// disrupt the machine. The first Grant of a process, and the first after a write of unknown outcome, uses a live
// list.
func (l *Ledger) Grant(ctx context.Context, asker Asker, candidates []Candidate) ([]Candidate, error) {
	if l == nil || len(candidates) == 0 {
		return candidates, nil
	}
	defer l.granting.Lock(asker.Namespace)()
	budgets, machines, err := l.count(ctx, asker.Namespace, l.confirmedMachines)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.view(asker.Namespace, budgets, machines)
	granted, _ := v.Decide(l.withWaitTimes(asker, candidates), l.otherCandidates(asker.Namespace, asker, v))
	r := l.namespaceState(asker.Namespace)
	for _, c := range granted {
		r.grants[c.Machine.UID] = false
	}
	return granted, nil
}

// Settle records the outcome of a grant. err is the error of the write, or nil if it succeeded or was not sent.
func (l *Ledger) Settle(m *v1beta1.Machine, err error) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.namespaceState(m.Namespace)
	if _, granted := r.grants[m.UID]; !granted {
		return
	}
	if freshness.Ambiguous(err) {
		r.grants[m.UID] = true
		r.cache.Invalidate()
		return
	}
	delete(r.grants, m.UID) // The next count reads the write from the cache.
}

func (l *Ledger) namespaceState(namespace string) *namespaceState {
	now := l.Clock.Now()
	r := l.namespaces[namespace]
	if r == nil {
		maps.DeleteFunc(l.namespaces, func(_ string, r *namespaceState) bool {
			return len(r.grants) == 0 && now.Sub(r.used) > namespaceTimeout
		})
		r = &namespaceState{grants: map[types.UID]bool{}, waiting: map[Asker]*askerState{}}
		l.namespaces[namespace] = r
	}
	r.used = now
	return r
}

// otherCandidates returns the candidates of all other Askers. The Machines of these candidates are replaced by the
// versions in the view, which are newer.
func (l *Ledger) otherCandidates(namespace string, asker Asker, v *View) (others []Candidate) {
	r := l.namespaces[namespace]
	if r == nil || len(r.waiting) == 0 {
		return nil
	}
	now := l.Clock.Now()
	machines := make(map[types.UID]*v1beta1.Machine, len(v.machines))
	for _, m := range v.machines {
		machines[m.UID] = m
	}
	for _, other := range r.askers() {
		w := r.waiting[other]
		if waited := now.Sub(w.lastAsked); waited > waitingTimeout || waited < 0 {
			delete(r.waiting, other)
			continue
		}
		if other == asker {
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
