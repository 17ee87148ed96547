package server

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/simcloud"
)

func TestFaultPreventsEffect(t *testing.T) {
	s := newService(t)
	s.fault(simcloud.FaultRule{Operation: simcloud.OperationCreateInstance, Count: 1, Effect: simcloud.FaultEffect{
		Error: simcloud.CodeThrottled, RetryAfter: simcloud.Duration(1500 * time.Millisecond)}})
	_, err := s.client.CreateInstance(t.Context(), wanted)
	if e, ok := errors.AsType[*simcloud.Error](err); !ok || e.Code != simcloud.CodeThrottled ||
		e.RetryAfter != 1500*time.Millisecond {
		t.Errorf("got %v", err)
	}
	if n := s.created(); n != 0 {
		t.Errorf("%d instances were created", n)
	}
	s.create()
}

func TestFaultAfterEffectHidesIt(t *testing.T) {
	for name, effect := range map[string]simcloud.FaultEffect{
		"error": {Error: simcloud.CodeInternalError, AfterEffect: true},
		"drop":  {DropConnection: true, AfterEffect: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			s.fault(simcloud.FaultRule{Operation: simcloud.OperationCreateInstance,
				Match: simcloud.FaultMatch{Tags: wanted.Tags}, Count: 1, Effect: effect})
			_, err := s.client.CreateInstance(t.Context(), wanted)
			_, connection := errors.AsType[*simcloud.ConnectionError](err)
			if err == nil || connection != effect.DropConnection {
				t.Errorf("got %v", err)
			}
			if n := s.created(); n != 1 {
				t.Errorf("%d instances were created", n)
			}
			s.create()
			if n := s.created(); n != 1 {
				t.Errorf("%d instances after a second call with the same token", n)
			}
			stats, err := s.admin.Statistics(t.Context())
			if err != nil || stats.Calls[simcloud.OperationCreateInstance].Total != 2 ||
				len(stats.Calls[simcloud.OperationCreateInstance].Errors) != 1 {
				t.Errorf("statistics: %+v %v", stats, err)
			}
		})
	}
}

func TestLateCallIsCarriedOutWithoutItsCaller(t *testing.T) {
	s := newService(t)
	s.fault(simcloud.FaultRule{Operation: simcloud.OperationCreateInstance,
		Effect: simcloud.FaultEffect{Latency: simcloud.Duration(time.Minute)}})
	ctx, giveUp := context.WithCancel(t.Context())
	answered := make(chan error)
	go func() {
		_, err := s.client.CreateInstance(ctx, wanted)
		answered <- err
	}()
	eventually(t, s.clock.HasWaiters)
	giveUp()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if n := s.created(); n != 0 {
		t.Errorf("%d instances before the latency has passed", n)
	}
	s.clock.Step(time.Minute)
	eventually(t, func() bool { return s.created() == 1 })
}

func TestCallIsCarriedOutAfterItsError(t *testing.T) {
	s := newService(t)
	s.fault(simcloud.FaultRule{Operation: simcloud.OperationCreateInstance, Count: 1, Effect: simcloud.FaultEffect{
		Error: simcloud.CodeUnavailable, EffectDelay: simcloud.Duration(time.Minute),
	}})
	if _, err := s.client.CreateInstance(t.Context(), wanted); simcloud.CodeOf(err) != simcloud.CodeUnavailable {
		t.Errorf("got %v", err)
	}
	eventually(t, s.clock.HasWaiters)
	s.clock.Step(time.Minute - 1)
	if n := s.created(); n != 0 {
		t.Errorf("%d instances before the delay has passed", n)
	}
	s.clock.Step(1)
	eventually(t, func() bool { return s.created() == 1 })
}

// A client without a limit would run out of memory.
func TestClientRefusesHugeAnswer(t *testing.T) {
	s := newService(t)
	huge := 256 << 20
	if _, err := s.admin.PatchSettings(t.Context(),
		simcloud.SettingsPatch{Semantics: &simcloud.SemanticsPatch{AnswerPadding: &huge}}); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := s.client.ListInstances(t.Context(), simcloud.ListInstancesOptions{})
	runtime.ReadMemStats(&after)
	if _, ok := errors.AsType[*simcloud.ConnectionError](err); !ok || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("got %v", err)
	}
	if read := after.TotalAlloc - before.TotalAlloc; read > uint64(huge) {
		t.Errorf("the client allocated %d bytes for an answer of %d bytes", read, huge)
	}
	small := 1 << 10
	if _, err := s.admin.PatchSettings(t.Context(),
		simcloud.SettingsPatch{Semantics: &simcloud.SemanticsPatch{AnswerPadding: &small}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.ListInstances(t.Context(), simcloud.ListInstancesOptions{}); err != nil {
		t.Errorf("with white space before the answer: %v", err)
	}
}

func TestAddressesOverHTTP(t *testing.T) {
	s, ctx := newService(t), t.Context()
	keep := true
	if _, err := s.admin.PatchSettings(ctx,
		simcloud.SettingsPatch{Semantics: &simcloud.SemanticsPatch{KeepAddresses: &keep}}); err != nil {
		t.Fatal(err)
	}
	in, err := s.client.CreateInstance(ctx, wanted)
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.client.ListAddresses(ctx, simcloud.ListInstancesOptions{Name: "is ignored",
		States: []simcloud.InstanceState{simcloud.StateTerminated}})
	if err != nil || len(list.Addresses) != 1 || list.Addresses[0].InstanceID != in.ID {
		t.Fatalf("addresses %+v, error %v", list, err)
	}
	if err := s.client.DeleteAddress(ctx,
		strings.ToUpper(list.Addresses[0].ID)); simcloud.CodeOf(err) != simcloud.CodeConflict {
		t.Errorf("delete an address in use: %v", err)
	}
	if got, err := s.client.GetInstance(ctx, strings.ToUpper(in.ID)); err != nil || got.ID != in.ID {
		t.Errorf("with an ID in upper case: %+v %v", got, err)
	}
}

func TestStoppingEndsLatencies(t *testing.T) {
	s := newService(t)
	s.fault(simcloud.FaultRule{Operation: "*", Effect: simcloud.FaultEffect{Latency: simcloud.Duration(time.Hour)}})
	answered := make(chan error)
	go func() {
		_, err := s.client.CreateInstance(t.Context(), wanted)
		answered <- err
	}()
	eventually(t, s.clock.HasWaiters)
	s.stop()
	if err := <-answered; simcloud.CodeOf(err) != simcloud.CodeUnavailable {
		t.Errorf("got %v", err)
	}
	if n := s.created(); n != 0 {
		t.Errorf("%d instances were created", n)
	}
}

func TestRuleForOneInstance(t *testing.T) {
	s, ctx := newService(t), t.Context()
	inst := s.create()
	other := wanted
	other.ClientToken, other.Name = "", "other"
	spared, err := s.client.CreateInstance(ctx, other)
	if err != nil {
		t.Fatal(err)
	}
	s.fault(simcloud.FaultRule{Operation: "*", Match: simcloud.FaultMatch{InstanceID: inst.ID},
		Effect: simcloud.FaultEffect{Error: simcloud.CodeUnavailable}})
	if _, err := s.client.DeleteInstance(ctx, inst.ID); simcloud.CodeOf(err) != simcloud.CodeUnavailable {
		t.Errorf("got %v", err)
	}
	if _, err := s.client.DeleteInstance(ctx, spared.ID); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestLaunchFaultAppliesToInstance(t *testing.T) {
	s, ctx := newService(t), t.Context()
	s.fault(simcloud.FaultRule{Operation: simcloud.OperationCreateInstance, Match: simcloud.FaultMatch{Name: "w*"},
		Effect: simcloud.FaultEffect{
			Instance: []simcloud.InstanceFault{{Kind: simcloud.FaultNeverBoots}}}})
	s.create()
	d, err := s.admin.Dump(ctx)
	if err != nil || len(d.Records) != 1 || len(d.Records[0].Faults) != 1 ||
		d.Records[0].Faults[0].Kind != simcloud.FaultNeverBoots {
		t.Errorf("dump: %+v %v", d, err)
	}
}

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatal("the condition was never met")
		case <-tick.C:
		}
	}
}
