package disruption

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/freshness"
	"machinist.dev/machinist/internal/index"
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
	mu         sync.Mutex
	namespaces map[string]*record
}

// record is what is remembered of a namespace.
type record struct {
	cache freshness.Tracker
	// granted are machines whose disruption is not written yet. It is true for those of which nobody knows whether it was.
	granted map[types.UID]bool
	waiting map[types.NamespacedName]*waiting
	// parsed are the budgets as they were last understood.
	parsed map[types.UID]parsed
}

// waiting are the candidates of somebody that were denied back.
type waiting struct {
	lastAsked  time.Time
	candidates []Candidate
}

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

// Concerns reports whether any of the machines, all of one namespace, may be denied back: there are budgets, or one is
// exempt.
func (l *Ledger) Concerns(ctx context.Context, namespace string, machines []*v1beta1.Machine) (bool, error) {
	if l == nil {
		return false, nil
	}
	for _, m := range machines {
		if _, exempt := m.Annotations[v1beta1.AnnotationDoNotDisrupt]; exempt {
			return true, nil
		}
	}
	budgets, err := l.list(ctx, namespace)
	return len(budgets) > 0, err
}

// Check returns which of the asker's candidates may be disrupted now. It grants nothing.
func (l *Ledger) Check(ctx context.Context, asker types.NamespacedName, candidates []Candidate) (may []Candidate,
	denied []Denial, err error) {
	if l == nil || len(candidates) == 0 {
		return candidates, nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	v, err := l.view(ctx, asker.Namespace, l.cached)
	if err != nil {
		return nil, nil, err
	}
	may, denied = v.Ask(l.sinceAsked(asker, candidates), l.others(asker.Namespace, asker, v))
	return may, denied, nil
}

// Waits records which candidates somebody wants to disrupt and may not, and replaces what was recorded of the asker
// before. None ends the waiting.
func (l *Ledger) Waits(asker types.NamespacedName, denied []Denial) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.record(asker.Namespace)
	if len(denied) == 0 {
		delete(r.waiting, asker)
		return
	}
	now := l.Clock.Now()
	candidates := make([]Candidate, len(denied))
	for i, h := range denied {
		candidates[i] = h.Candidate
	}
	candidates = l.sinceAsked(asker, candidates)
	for i := range candidates {
		if c := &candidates[i]; c.asked.IsZero() || c.asked.After(now) {
			c.asked = now
		}
	}
	r.waiting[asker] = &waiting{lastAsked: now, candidates: candidates}
}

// sinceAsked returns the candidates with the times since when they wait.
func (l *Ledger) sinceAsked(asker types.NamespacedName, candidates []Candidate) []Candidate {
	candidates = slices.Clone(candidates)
	before := l.record(asker.Namespace).waiting[asker]
	if before == nil {
		return candidates
	}
	asked := make(map[types.UID]time.Time, len(before.candidates))
	for _, c := range before.candidates {
		asked[c.Machine.UID] = c.asked
	}
	for i := range candidates {
		candidates[i].asked = asked[candidates[i].Machine.UID]
	}
	return candidates
}

// Waiting returns who waits in a namespace.
func (l *Ledger) Waiting(namespace string) (askers []types.NamespacedName) {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.namespaces[namespace]; r != nil {
		for asker := range r.waiting {
			askers = append(askers, asker)
		}
	}
	slices.SortFunc(askers, func(a, b types.NamespacedName) int { return cmp.Compare(a.Name, b.Name) })
	return askers
}

// Grant returns which of the candidates, all of one namespace, may be disrupted, and takes their room. The caller must
// call Settle for each of these, whatever comes of it. The count is exact: the first one of a process, and the first
// after a write of unknown outcome, is of a live list.
func (l *Ledger) Grant(ctx context.Context, asker types.NamespacedName, candidates []Candidate) ([]Candidate, error) {
	if l == nil || len(candidates) == 0 {
		return candidates, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	v, err := l.view(ctx, asker.Namespace, l.confirmed)
	if err != nil {
		return nil, err
	}
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
	r := l.namespaces[namespace]
	if r == nil {
		r = &record{granted: map[types.UID]bool{}, waiting: map[types.NamespacedName]*waiting{}}
		l.namespaces[namespace] = r
	}
	return r
}

// list returns the budgets of a namespace from the cache, not to be changed.
func (l *Ledger) list(ctx context.Context, namespace string) ([]*v1beta1.MachineDisruptionBudget, error) {
	budgets, err := index.Shared[v1beta1.MachineDisruptionBudget](ctx, l.Client, &v1beta1.MachineDisruptionBudgetList{},
		client.InNamespace(namespace))
	if err != nil {
		return nil, fmt.Errorf("list disruption budgets: %w", err)
	}
	return slices.DeleteFunc(budgets, func(b *v1beta1.MachineDisruptionBudget) bool {
		return !b.DeletionTimestamp.IsZero()
	}), nil
}

// view counts the machines of a namespace that a function returns, if there are budgets.
func (l *Ledger) view(ctx context.Context, namespace string,
	machinesOf func(context.Context, string) ([]*v1beta1.Machine, error)) (*View, error) {
	listed, err := l.list(ctx, namespace)
	if err != nil {
		return nil, err
	}
	now := l.Clock.Now()
	if len(listed) == 0 {
		return NewView(nil, nil, nil, now), nil
	}
	r := l.record(namespace)
	budgets := r.understood(listed)
	machines, err := machinesOf(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return NewView(budgets, machines, func(uid types.UID) bool { _, is := r.granted[uid]; return is }, now), nil
}

// cached returns the machines of a namespace as the cache has them.
func (l *Ledger) cached(ctx context.Context, namespace string) ([]*v1beta1.Machine, error) {
	machines, err := index.Shared[v1beta1.Machine](ctx, l.Client, &v1beta1.MachineList{}, client.InNamespace(namespace))
	if err != nil {
		return nil, fmt.Errorf("list the machines that budgets select: %w", err)
	}
	return machines, nil
}

// understood returns the budgets as they are understood. What that takes is done once for each generation.
func (r *record) understood(listed []*v1beta1.MachineDisruptionBudget) []*Budget {
	budgets, now := make([]*Budget, len(listed)), make(map[types.UID]parsed, len(listed))
	for i, b := range listed {
		known, ok := r.parsed[b.UID]
		if !ok || known.generation != b.Generation {
			budget, _ := Parse(b) // One that cannot be understood allows nothing; its condition says why.
			known = parsed{b.Generation, budget}
		}
		now[b.UID], budgets[i] = known, known.budget
	}
	r.parsed = now
	return budgets
}

// others returns the candidates of others that still wait, as the view has their machines.
func (l *Ledger) others(namespace string, asker types.NamespacedName, v *View) (others []Candidate) {
	r := l.namespaces[namespace]
	if r == nil || len(r.waiting) == 0 {
		return nil
	}
	now := l.Clock.Now()
	machines := make(map[types.UID]*v1beta1.Machine, len(v.machines))
	for _, m := range v.machines {
		machines[m.UID] = m
	}
	for who, w := range r.waiting {
		if waited := now.Sub(w.lastAsked); waited > forgetWaiting || waited < 0 {
			delete(r.waiting, who)
			continue
		}
		if who == asker {
			continue
		}
		for _, c := range w.candidates {
			if m := machines[c.Machine.UID]; m != nil {
				c.Machine = m
				others = append(others, c)
			}
		}
	}
	return others
}

// confirmed returns the machines of a namespace from the cache if that may be trusted, or else from a live list. What
// other processes granted and wrote, or this one with an unknown outcome, is then counted.
func (l *Ledger) confirmed(ctx context.Context, namespace string) ([]*v1beta1.Machine, error) {
	r, version := l.record(namespace), ""
	if l.CacheVersion != nil {
		version = l.CacheVersion()
	}
	if r.cache.Trusts(version) {
		return l.cached(ctx, namespace)
	}
	began, list := r.cache.Mark(), &v1beta1.MachineList{}
	machines, err := index.Shared[v1beta1.Machine](ctx, l.Live, list, client.InNamespace(namespace))
	if err != nil {
		return nil, fmt.Errorf("list the machines that budgets select live: %w", err)
	}
	r.cache.Relisted(began, list.ResourceVersion)
	for uid, unknown := range r.granted {
		if unknown {
			delete(r.granted, uid)
		}
	}
	return machines, nil
}
