//go:build e2e

package e2e

import (
	"context"
	"testing"
	"time"

	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/simcloud"
)

// A fleet is created, scaled and deleted in a cloud with the consistency and errors of real clouds. The cloud must
// create exactly the requested instances, and nothing may remain. The provider must not treat an existing instance as
// missing.
func TestFleetWorksWithCloudSemantics(t *testing.T) {
	t.Parallel()
	const second, often, sometimes = simcloud.Duration(time.Second), 0.5, 0.1
	changes := []string{simcloud.OperationCreateInstance, simcloud.OperationDeleteInstance}
	onChanges := func(effect simcloud.FaultEffect) (rules []simcloud.FaultRule) {
		for _, operation := range changes {
			rules = append(rules, simcloud.FaultRule{Operation: operation, Probability: often, Seed: 1, Effect: effect})
		}
		return rules
	}
	m := start(t, stack.Options{})
	m.createFleet(0, nil)
	made := 0
	for _, tc := range []struct {
		name      string
		semantics simcloud.Semantics
		rules     []simcloud.FaultRule
	}{
		{name: "reads, lists and tags lag", semantics: simcloud.Semantics{GetLag: 2 * second, ListLag: 3 * second,
			TagLag: 4 * second}},
		{name: "lists omit and repeat", semantics: simcloud.Semantics{ListOmits: 2, ListRepeats: true}},
		{name: "states return in other case", semantics: simcloud.Semantics{StateReturns: 2 * second, OtherCase: true}},
		{name: "addresses remain, answers are long", semantics: simcloud.Semantics{KeepAddresses: true,
			AnswerPadding: 1 << 20}},
		{name: "quota is released late, the clock is ahead", semantics: simcloud.Semantics{QuotaLag: 5 * second,
			ClockOffset: 600 * second}},
		{name: "the clock is behind", semantics: simcloud.Semantics{ClockOffset: -600 * second}},
		{name: "answers are lost", rules: onChanges(simcloud.FaultEffect{DropConnection: true, AfterEffect: true})},
		{name: "actions take effect late",
			rules: onChanges(simcloud.FaultEffect{Error: simcloud.CodeUnavailable, EffectDelay: 3 * second})},
		{name: "calls are throttled", rules: []simcloud.FaultRule{
			{Operation: "*", Probability: sometimes, Seed: 1, Effect: simcloud.FaultEffect{Error: simcloud.CodeThrottled}},
			{Operation: "*", Probability: sometimes, Seed: 2, Effect: simcloud.FaultEffect{Error: simcloud.CodeThrottled,
				RetryAfter: second}},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m.setSemantics(tc.semantics)
			for _, rule := range tc.rules {
				if _, err := m.cloud.AddFault(context.Background(), rule); err != nil {
					t.Fatal(err)
				}
			}
			begun := time.Now()
			m.scale(5)
			m.awaitRunning(5)
			m.scale(2)
			m.awaitRunning(2)
			made += 5
			m.wantInstances(t, made, 2)
			m.scale(0)
			m.awaitNoMachines()
			m.wantInstances(t, made, 0)
			for _, in := range m.instances() {
				if in.AddressInUse {
					t.Errorf("the address of instance %s is still in use", in.ID)
				}
			}
			m.wantRulesApplied(t)
			if err := m.cloud.ClearFaults(context.Background()); err != nil {
				t.Fatal(err)
			}
			t.Logf("scaled to five, two and zero machines within %s", time.Since(begun).Round(100*time.Millisecond))
		})
	}
	m.wantNoTwins()
}

func (m *machinist) wantRulesApplied(t *testing.T) {
	t.Helper()
	rules, err := m.cloud.ListFaults(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules {
		if rule.Acted == 0 {
			t.Errorf("the fault rule for %s matched %d calls but affected none", rule.Operation, rule.Matched)
		}
	}
}

func (m *machinist) setSemantics(s simcloud.Semantics) {
	m.t.Helper()
	m.settings(simcloud.SettingsPatch{Semantics: &simcloud.SemanticsPatch{
		GetLag: &s.GetLag, ListLag: &s.ListLag, TagLag: &s.TagLag, ListOmits: &s.ListOmits, ListRepeats: &s.ListRepeats,
		StateReturns: &s.StateReturns, OtherCase: &s.OtherCase, KeepAddresses: &s.KeepAddresses, QuotaLag: &s.QuotaLag,
		AnswerPadding: &s.AnswerPadding, ClockOffset: &s.ClockOffset,
	}})
}
