// Package fault decides which calls to the simulated cloud fail, according to rules of its operator.
package fault

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/cloud"
	"machinist.dev/machinist/simcloud/journal"
)

const keyFault = "fault/"

// Call contains the properties of a customer's API call that rules can match.
type Call struct {
	Operation string
	Account   string
	// Instance is the existing instance that the call reads or changes, or the instance that the call creates. If there
	// is no such instance, Instance is nil. For a list, Instance contains only the tags in the options of the list.
	Instance *simcloud.Instance
}

// Decision is the result of all matching rules.
type Decision struct {
	// DelayBefore is the delay between the request and the execution of the call. DelayAfter is the delay between the
	// execution and the answer.
	DelayBefore, DelayAfter time.Duration
	// AnswerFails is true if the caller does not get the real answer. With Drop, the connection is closed. Otherwise,
	// the answer is Error.
	AnswerFails bool
	// IsExecuted is true if the cloud executes the call before the caller gets the failure.
	IsExecuted bool
	// LateDelay is the delay between the failure and the execution of the call. If LateDelay is 0, the call is not
	// executed after the failure.
	LateDelay time.Duration
	Drop      bool
	Error     *simcloud.Error
	// Instance contains faults for the instance that the call creates.
	Instance []simcloud.InstanceFault
}

// Rules contains the fault rules of a cloud, and decides which calls they affect. It is safe for concurrent use.
type Rules struct {
	journal *journal.Journal
	mu      sync.Mutex
	rules   []*rule // rules ordered by sequence number
}

// rule is a fault rule as the journal stores it. The journal also stores the counters of the rule. So a rule for the
// third call works even if the cloud is restarted after the second call.
type rule struct {
	simcloud.FaultRule
	Sequence int `json:"sequence"`
}

// Load returns the rules stored by a previous process.
func Load(j *journal.Journal) (*Rules, error) {
	rs := &Rules{journal: j}
	for key := range j.Keys() {
		if !strings.HasPrefix(key, keyFault) {
			continue
		}
		var r rule
		if _, err := j.Get(key, &r); err != nil {
			return nil, fmt.Errorf("load fault rules: %w", err)
		}
		rs.rules = append(rs.rules, &r)
	}
	slices.SortFunc(rs.rules, func(a, b *rule) int { return a.Sequence - b.Sequence })
	return rs, nil
}

// Decide applies all matching rules to a call and increments their counters.
func (rs *Rules) Decide(c Call) (Decision, error) {
	var d Decision
	rs.mu.Lock()
	defer rs.mu.Unlock()
	var ops []journal.Op
	var spent []*rule
	for _, r := range rs.rules {
		if !r.matches(c) {
			continue
		}
		r.Matched++
		if r.acts() {
			r.Acted++
			d.add(r)
		}
		op := journal.Op{Key: keyFault + r.ID, Value: *r}
		if r.Count > 0 && r.Acted == r.Count {
			spent = append(spent, r)
			op.Value = nil
		}
		ops = append(ops, op)
	}
	if len(ops) == 0 {
		return d, nil
	}
	rs.rules = slices.DeleteFunc(rs.rules, func(r *rule) bool { return slices.Contains(spent, r) })
	if err := rs.journal.Commit(ops...); err != nil {
		return d, fmt.Errorf("save fault rules: %w", err)
	}
	return d, nil
}

func (d *Decision) add(r *rule) {
	e := r.Effect
	d.DelayBefore += time.Duration(e.Latency)
	d.DelayAfter += time.Duration(e.ResponseLatency)
	d.Instance = append(d.Instance, e.Instance...)
	if d.AnswerFails || (e.Error == "" && !e.DropConnection) {
		return
	}
	d.AnswerFails, d.IsExecuted, d.LateDelay, d.Drop = true, e.AfterEffect, time.Duration(e.EffectDelay), e.DropConnection
	if e.Error != "" {
		message := e.Message
		if message == "" {
			message = "fault rule " + r.ID
		}
		d.Error = &simcloud.Error{Code: e.Error, Message: message, RetryAfter: time.Duration(e.RetryAfter)}
	}
}

func (r *rule) acts() bool {
	if r.Matched <= r.Skip {
		return false
	}
	return r.Probability == 0 || uniform(r.Seed, uint64(r.Matched)) < r.Probability
}

// uniform returns a number in [0, 1) that depends only on its arguments. So the same calls are affected after a
// restart, although no state of a random generator is saved. The algorithm is splitmix64.
func uniform(seed, n uint64) float64 {
	x := seed + n*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return float64(x>>11) / (1 << 53)
}

func (r *rule) matches(c Call) bool {
	m := r.Match
	operation := r.Operation == "*" || r.Operation == c.Operation || r.Operation == simcloud.ChangesOnly &&
		slices.Contains(simcloud.ChangeOperations(), c.Operation)
	if !operation || (m.Account != "" && m.Account != c.Account) {
		return false
	}
	m.Account = ""
	i := c.Instance
	if i == nil {
		return m.InstanceID == "" && len(m.Tags) == 0 && m.Name == "" && m.Type == "" && m.Region == "" && m.Zone == ""
	}
	for key, value := range m.Tags {
		if got, ok := i.Tags[key]; !ok || got != value {
			return false
		}
	}
	if m.Name != "" {
		if ok, err := path.Match(m.Name, i.Name); !ok || err != nil {
			return false
		}
	}
	return (m.InstanceID == "" || m.InstanceID == i.ID) &&
		(m.Type == "" || m.Type == i.Type) &&
		(m.Region == "" || m.Region == i.Region) &&
		(m.Zone == "" || m.Zone == i.Zone)
}

// Add stores a new rule and returns it with its ID.
func (rs *Rules) Add(new simcloud.FaultRule) (*simcloud.FaultRule, error) {
	if err := validate(new); err != nil {
		return nil, err
	}
	random := make([]byte, 6)
	rand.Read(random) // rand.Read never fails
	new.ID, new.Matched, new.Acted = "fault-"+hex.EncodeToString(random), 0, 0
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := &rule{FaultRule: new, Sequence: 1}
	if n := len(rs.rules); n > 0 {
		r.Sequence = rs.rules[n-1].Sequence + 1
	}
	if err := rs.journal.Commit(journal.Op{Key: keyFault + r.ID, Value: *r}); err != nil {
		return nil, &simcloud.Error{Code: simcloud.CodeInternalError, Message: err.Error()}
	}
	rs.rules = append(rs.rules, r)
	return &new, nil
}

// List returns the active rules in the order in which they apply.
func (rs *Rules) List() []simcloud.FaultRule {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	all := make([]simcloud.FaultRule, 0, len(rs.rules))
	for _, r := range rs.rules {
		all = append(all, r.FaultRule)
	}
	return all
}

// Remove removes a rule. If the ID is empty, it removes all rules.
func (rs *Rules) Remove(id string) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	selected := func(r *rule) bool { return id == "" || r.ID == id }
	var ops []journal.Op
	for _, r := range rs.rules {
		if selected(r) {
			ops = append(ops, journal.Op{Key: keyFault + r.ID})
		}
	}
	if len(ops) == 0 {
		if id == "" {
			return nil
		}
		return &simcloud.Error{Code: simcloud.CodeNotFound, Message: fmt.Sprintf("fault rule %q does not exist", id)}
	}
	if err := rs.journal.Commit(ops...); err != nil {
		return &simcloud.Error{Code: simcloud.CodeInternalError, Message: err.Error()}
	}
	rs.rules = slices.DeleteFunc(rs.rules, selected)
	return nil
}

func validate(r simcloud.FaultRule) error {
	invalid := func(format string, args ...any) error {
		return &simcloud.Error{Code: simcloud.CodeInvalidParameter, Message: fmt.Sprintf(format, args...)}
	}
	e := r.Effect
	switch {
	case r.Operation != "*" && r.Operation != simcloud.ChangesOnly && !slices.Contains(simcloud.Operations(), r.Operation):
		return invalid("operation: %q must be an operation, %q or \"*\"", r.Operation, simcloud.ChangesOnly)
	case r.Skip < 0 || r.Count < 0:
		return invalid("skip: %d and count: %d must not be negative", r.Skip, r.Count)
	case !(r.Probability >= 0 && r.Probability <= 1):
		return invalid("probability: %v must be from 0 to 1", r.Probability)
	case e.Error != "" && e.Error.HTTPStatus() == 0:
		return invalid("effect.error: the code %q does not exist", e.Error)
	case e.Error != "" && e.DropConnection:
		return invalid("effect: error and dropConnection exclude each other")
	case e.Error == "" && (e.Message != "" || e.RetryAfter != 0):
		return invalid("effect: message and retryAfter need error")
	case e.AfterEffect && e.Error == "" && !e.DropConnection:
		return invalid("effect: afterEffect needs error or dropConnection")
	case e.EffectDelay != 0 && (e.AfterEffect || e.Error == "" && !e.DropConnection):
		return invalid("effect: effectDelay needs error or dropConnection, and excludes afterEffect")
	case e.Latency < 0 || e.ResponseLatency < 0 || e.RetryAfter < 0 || e.EffectDelay < 0:
		return invalid("effect: a time must not be negative")
	case e.Error == "" && !e.DropConnection && e.Latency == 0 && e.ResponseLatency == 0 && len(e.Instance) == 0:
		return invalid("effect: must not be empty")
	case len(e.Instance) > 0 && r.Operation != simcloud.OperationCreateInstance:
		return invalid("effect.instance: needs operation %s", simcloud.OperationCreateInstance)
	}
	if _, err := path.Match(r.Match.Name, ""); err != nil {
		return invalid("match.name: %q is not a valid pattern", r.Match.Name)
	}
	for _, f := range e.Instance {
		if err := cloud.ValidateFault(f); err != nil {
			return invalid("effect.instance: %v", err)
		}
	}
	return nil
}
