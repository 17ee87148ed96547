package fault

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/journal"
)

type testRules struct {
	t       *testing.T
	dir     string
	journal *journal.Journal
	*Rules
}

func newTestRules(t *testing.T) *testRules {
	t.Helper()
	d := &testRules{t: t, dir: t.TempDir()}
	d.open()
	t.Cleanup(func() { d.journal.Close() })
	return d
}

func (d *testRules) open() {
	d.t.Helper()
	var err error
	if d.journal, err = journal.Open(d.dir); err != nil {
		d.t.Fatal(err)
	}
	if d.Rules, err = Load(d.journal); err != nil {
		d.t.Fatal(err)
	}
}

func (d *testRules) restart() {
	d.t.Helper()
	if err := d.journal.Close(); err != nil {
		d.t.Fatal(err)
	}
	d.open()
}

func (d *testRules) add(r simcloud.FaultRule) string {
	d.t.Helper()
	added, err := d.Add(r)
	if err != nil {
		d.t.Fatal(err)
	}
	return added.ID
}

func (d *testRules) decide(c Call) Decision {
	d.t.Helper()
	decision, err := d.Decide(c)
	if err != nil {
		d.t.Fatal(err)
	}
	return decision
}

// run returns an x for each failing call, and a dot for each other call.
func (d *testRules) run(n int) string {
	d.t.Helper()
	var out strings.Builder
	for range n {
		if d.decide(Call{Operation: simcloud.OperationGetInstance}).AnswerFails {
			out.WriteByte('x')
		} else {
			out.WriteByte('.')
		}
	}
	return out.String()
}

var throttle = simcloud.FaultEffect{Error: simcloud.CodeThrottled, RetryAfter: simcloud.Duration(time.Second)}

func TestSkipAndCountHoldAcrossRestarts(t *testing.T) {
	d := newTestRules(t)
	d.add(simcloud.FaultRule{Operation: simcloud.OperationGetInstance, Skip: 2, Count: 3, Effect: throttle})
	got := d.run(1)
	d.restart()
	got += d.run(2)
	d.restart()
	if rules := d.List(); len(rules) != 1 || rules[0].Matched != 3 || rules[0].Acted != 1 {
		t.Errorf("stored rules: %+v", rules)
	}
	got += d.run(5)
	if got != "..xxx..." {
		t.Errorf("got %s", got)
	}
	d.restart()
	if rules := d.List(); len(rules) != 0 {
		t.Errorf("a rule that has reached its count is stored: %+v", rules)
	}
}

func TestProbabilityDependsOnSeed(t *testing.T) {
	const n = 2000
	runs := map[uint64]string{}
	for _, seed := range []uint64{1, 2} {
		d := newTestRules(t)
		d.add(simcloud.FaultRule{Operation: "*", Probability: 0.25, Seed: seed, Effect: throttle})
		runs[seed] = d.run(n / 2)
		d.restart()
		runs[seed] += d.run(n / 2)
		if hits := strings.Count(runs[seed], "x"); hits < n/5 || hits > n*3/10 {
			t.Errorf("seed %d: %d of %d", seed, hits, n)
		}
	}
	again := newTestRules(t)
	again.add(simcloud.FaultRule{Operation: "*", Probability: 0.25, Seed: 1, Effect: throttle})
	if again.run(n) != runs[1] || runs[1] == runs[2] {
		t.Error("the same seed gave a different run, or different seeds gave the same run")
	}
}

func TestRulesMatchCalls(t *testing.T) {
	inst := &simcloud.Instance{ID: "i-1", Name: "worker-7", Type: "small", Region: "r", Zone: "z",
		Tags: map[string]string{"a": "1", "b": "2"}}
	for name, test := range map[string]struct {
		match    simcloud.FaultMatch
		instance *simcloud.Instance
		want     bool
	}{
		"everything":                  {simcloud.FaultMatch{}, inst, true},
		"no instance":                 {simcloud.FaultMatch{}, nil, true},
		"account":                     {simcloud.FaultMatch{Account: "alice"}, nil, true},
		"other account":               {simcloud.FaultMatch{Account: "bob"}, inst, false},
		"tags":                        {simcloud.FaultMatch{Tags: map[string]string{"a": "1"}}, inst, true},
		"other tag value":             {simcloud.FaultMatch{Tags: map[string]string{"a": "1", "b": "1"}}, inst, false},
		"missing tag":                 {simcloud.FaultMatch{Tags: map[string]string{"c": ""}}, inst, false},
		"tags without an instance":    {simcloud.FaultMatch{Tags: map[string]string{"a": "1"}}, nil, false},
		"name":                        {simcloud.FaultMatch{Name: "worker-*"}, inst, true},
		"other name":                  {simcloud.FaultMatch{Name: "master-*"}, inst, false},
		"all fields":                  {simcloud.FaultMatch{InstanceID: "i-1", Type: "small", Region: "r", Zone: "z"}, inst, true},
		"other ID":                    {simcloud.FaultMatch{InstanceID: "i-2"}, inst, false},
		"other type":                  {simcloud.FaultMatch{Type: "large"}, inst, false},
		"other region":                {simcloud.FaultMatch{Region: "q"}, inst, false},
		"other zone":                  {simcloud.FaultMatch{Zone: "y"}, inst, false},
		"ID without an instance":      {simcloud.FaultMatch{InstanceID: "i-1"}, nil, false},
		"account without an instance": {simcloud.FaultMatch{Account: "alice", Type: "small"}, nil, false},
	} {
		d := newTestRules(t)
		d.add(simcloud.FaultRule{Operation: simcloud.OperationGetInstance, Match: test.match, Effect: throttle})
		c := Call{Operation: simcloud.OperationGetInstance, Account: "alice", Instance: test.instance}
		if got := d.decide(c).AnswerFails; got != test.want {
			t.Errorf("%s: got %v", name, got)
		}
		c.Operation = simcloud.OperationDeleteInstance
		if d.decide(c).AnswerFails {
			t.Errorf("%s: the rule acts on another operation", name)
		}
	}
}

func TestRulesAddUp(t *testing.T) {
	d := newTestRules(t)
	second := simcloud.Duration(time.Second)
	d.add(simcloud.FaultRule{Operation: "*", Effect: simcloud.FaultEffect{Latency: second, ResponseLatency: second}})
	first := d.add(simcloud.FaultRule{Operation: "*", Effect: simcloud.FaultEffect{Error: simcloud.CodeUnavailable,
		Latency: second, AfterEffect: true}})
	drop := d.add(simcloud.FaultRule{Operation: "*", Effect: simcloud.FaultEffect{DropConnection: true}})
	d.add(simcloud.FaultRule{Operation: simcloud.OperationCreateInstance,
		Effect: simcloud.FaultEffect{Instance: []simcloud.InstanceFault{{Kind: simcloud.FaultSilent}}}})
	c := Call{Operation: simcloud.OperationCreateInstance}
	got := d.decide(c)
	if got.DelayBefore != 2*time.Second || got.DelayAfter != time.Second || !got.AnswerFails || !got.IsExecuted ||
		got.Drop ||
		got.Error.Code != simcloud.CodeUnavailable || len(got.Instance) != 1 {
		t.Errorf("got %+v", got)
	}
	if err := d.Remove(first); err != nil {
		t.Fatal(err)
	}
	d.restart()
	if got := d.decide(c); !got.Drop || got.IsExecuted || got.Error != nil {
		t.Errorf("got %+v", got)
	}
	if err := d.Remove(drop); err != nil {
		t.Fatal(err)
	}
	if got := d.decide(c); got.AnswerFails || len(got.Instance) != 1 {
		t.Errorf("got %+v", got)
	}
	if err := d.Remove(drop); simcloud.CodeOf(err) != simcloud.CodeNotFound {
		t.Errorf("second removal: %v", err)
	}
	if err := d.Remove(""); err != nil || len(d.List()) != 0 {
		t.Errorf("clear: %v %v", err, d.List())
	}
	if fmt.Sprint(d.decide(c)) != fmt.Sprint(Decision{}) {
		t.Error("a removed rule acts")
	}
}

func TestInvalidRulesAreRefused(t *testing.T) {
	d := newTestRules(t)
	for mention, r := range map[string]simcloud.FaultRule{
		"operation":    {Operation: "Create", Effect: throttle},
		"skip":         {Operation: "*", Skip: -1, Effect: throttle},
		"probability":  {Operation: "*", Probability: 1.5, Effect: throttle},
		"effect.error": {Operation: "*", Effect: simcloud.FaultEffect{Error: "Nope"}},
		"exclude": {Operation: "*", Effect: simcloud.FaultEffect{Error: simcloud.CodeThrottled,
			DropConnection: true}},
		"retryAfter":  {Operation: "*", Effect: simcloud.FaultEffect{DropConnection: true, RetryAfter: 1}},
		"afterEffect": {Operation: "*", Effect: simcloud.FaultEffect{Latency: 1, AfterEffect: true}},
		"negative":    {Operation: "*", Effect: simcloud.FaultEffect{Latency: -1}},
		"empty":       {Operation: "*"},
		"operation CreateInstance": {Operation: "*",
			Effect: simcloud.FaultEffect{Instance: []simcloud.InstanceFault{{Kind: simcloud.FaultDies}}}},
		"match.name": {Operation: "*", Match: simcloud.FaultMatch{Name: "[a"}, Effect: throttle},
		"kind": {Operation: simcloud.OperationCreateInstance,
			Effect: simcloud.FaultEffect{Instance: []simcloud.InstanceFault{{Kind: "Burns"}}}},
	} {
		if _, err := d.Add(r); simcloud.CodeOf(err) != simcloud.CodeInvalidParameter ||
			!strings.Contains(err.Error(), mention) {
			t.Errorf("%s: got %v", mention, err)
		}
	}
	if len(d.List()) != 0 {
		t.Error("a rule that is not valid is in force")
	}
}
