package cloud

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/catalog"
	"machinist.dev/machinist/simcloud/host"
)

func TestLifeCycleOfInstance(t *testing.T) {
	w := newTestCloud(t)
	inst := w.create(withToken("t1"))
	if inst.State != simcloud.StatePending || len(inst.ID) != 19 || inst.ProviderID != "sim://sim-1/sim-1a/"+inst.ID {
		t.Errorf("created %+v", inst)
	}
	w.expectOn()
	w.pass(999 * time.Millisecond)
	w.wantState(inst.ID, simcloud.StatePending)
	w.pass(time.Millisecond)
	w.wantState(inst.ID, simcloud.StateRunning)
	w.expectOn(inst.ID)

	gone, err := w.Delete("alice", inst.ID)
	if err != nil || gone.State != simcloud.StateShuttingDown {
		t.Fatalf("delete: %+v %v", gone, err)
	}
	w.expectOn()
	w.pass(500 * time.Millisecond)
	if again, err := w.Delete("alice", inst.ID); err != nil || again.State != simcloud.StateShuttingDown {
		t.Errorf("delete again: %+v %v", again, err)
	}
	w.pass(500 * time.Millisecond)
	w.wantState(inst.ID, simcloud.StateTerminated)
	if again, err := w.Delete("alice", inst.ID); err != nil || again.State != simcloud.StateTerminated ||
		again.TerminationTime == nil {
		t.Errorf("delete when terminated: %+v %v", again, err)
	}
	w.checkInvariants()

	w.pass(10 * time.Minute)
	w.wantState(inst.ID, "")
	_, err = w.Delete("alice", inst.ID)
	wantCode(t, err, simcloud.CodeNotFound, inst.ID)
	if same := w.create(withToken("t1")); same.ID != inst.ID || same.State != simcloud.StateTerminated {
		t.Errorf("the token returned %+v", same)
	}
	if d := w.Dump(); len(d.Records) != 1 || !d.Records[0].Hidden {
		t.Errorf("dump: %+v", d)
	}

	w.pass(24 * time.Hour)
	if d := w.Dump(); len(d.Records) != 0 || d.InstancesCreated != 1 {
		t.Errorf("dump after all retention times: %+v", d)
	}
	for key := range w.journal.Keys() {
		if key != keyMeta {
			t.Errorf("the journal still has %s", key)
		}
	}
	if other := w.create(withToken("t1")); other.ID == inst.ID {
		t.Error("the token is still remembered")
	}
	w.checkInvariants()
}

func TestDurationsOfZeroApplyAtOnce(t *testing.T) {
	w := newTestCloud(t, func(c *catalog.Catalog) { c.Settings = simcloud.Settings{} })
	inst := w.create()
	if inst.State != simcloud.StateRunning {
		t.Errorf("created %s", inst.State)
	}
	if gone, err := w.Delete("alice", inst.ID); err != nil || gone.State != simcloud.StateTerminated {
		t.Errorf("deleted %+v %v", gone, err)
	}
	w.wantState(inst.ID, "")
	w.checkInvariants()
}

func TestFaultsOfInstances(t *testing.T) {
	second := simcloud.Duration(time.Second)
	type step struct {
		after time.Duration
		fault simcloud.InstanceFaultKind // fault to add before the time passes
		state simcloud.InstanceState
		on    bool
	}
	for name, test := range map[string]struct {
		launch []simcloud.InstanceFault
		steps  []step
	}{
		"never boots, then recovers": {
			[]simcloud.InstanceFault{{Kind: simcloud.FaultNeverBoots}},
			[]step{{time.Hour, "", simcloud.StatePending, false},
				{time.Second, simcloud.FaultRecovers, simcloud.StateRunning, true}},
		},
		"boots late": {
			[]simcloud.InstanceFault{{Kind: simcloud.FaultBootDelay, Delay: 9 * second}},
			[]step{{9 * time.Second, "", simcloud.StatePending, false}, {time.Second, "", simcloud.StateRunning, true}},
		},
		"never registers, then recovers": {
			[]simcloud.InstanceFault{{Kind: simcloud.FaultNeverRegisters}},
			[]step{{time.Hour, "", simcloud.StateRunning, false}, {0, simcloud.FaultRecovers, simcloud.StateRunning, true}},
		},
		"becomes silent later, then recovers": {
			[]simcloud.InstanceFault{{Kind: simcloud.FaultSilent, After: 5 * second}},
			[]step{{4 * time.Second, "", simcloud.StateRunning, true}, {time.Second, "", simcloud.StateRunning, false},
				{0, simcloud.FaultRecovers, simcloud.StateRunning, true}},
		},
		"dies, then recovers": {
			nil,
			[]step{{time.Second, "", simcloud.StateRunning, true}, {time.Hour, simcloud.FaultDies, simcloud.StateStopped, false},
				{time.Second, simcloud.FaultRecovers, simcloud.StateRunning, true}},
		},
		"dies while booting": {
			[]simcloud.InstanceFault{{Kind: simcloud.FaultDies, After: second / 2}},
			[]step{{time.Hour, "", simcloud.StateStopped, false}},
		},
		"vanishes": {
			[]simcloud.InstanceFault{{Kind: simcloud.FaultVanishes, After: 5 * second}},
			[]step{{4 * time.Second, "", simcloud.StateRunning, true}, {time.Second, "", "", false}},
		},
		"several, in the order of their times": {
			[]simcloud.InstanceFault{{Kind: simcloud.FaultVanishes, After: 9 * second},
				{Kind: simcloud.FaultRecovers, After: 4 * second}, {Kind: simcloud.FaultSilent, After: 2 * second}},
			[]step{{3 * time.Second, "", simcloud.StateRunning, false}, {time.Second, "", simcloud.StateRunning, true},
				{5 * time.Second, "", "", false}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestCloud(t)
			inst := w.createWith(test.launch)
			for i, s := range test.steps {
				if s.fault != "" {
					w.applyFault(inst.ID, s.fault)
				}
				w.pass(s.after)
				if i%2 == 1 {
					w.restart()
				}
				w.wantState(inst.ID, s.state)
				if s.on {
					w.expectOn(inst.ID)
				} else {
					w.expectOn()
				}
			}
			w.checkInvariants()
		})
	}
}

func TestVanishedInstanceIsInDumpAndKeepsToken(t *testing.T) {
	w := newTestCloud(t)
	inst := w.create(withToken("t"))
	w.applyFault(inst.ID, simcloud.FaultVanishes)
	w.wantState(inst.ID, "")
	list, err := w.List("alice", simcloud.ListInstancesOptions{})
	if err != nil || len(list.Instances) != 0 {
		t.Errorf("list: %+v %v", list, err)
	}
	if same := w.create(withToken("t")); same.ID != inst.ID || same.State != simcloud.StateTerminated {
		t.Errorf("the token returned %+v", same)
	}
	if d := w.Dump(); len(d.Records) != 1 || !d.Records[0].Hidden || d.Records[0].StateReason == "" {
		t.Errorf("dump: %+v", d)
	}
	w.checkInvariants()
}

func TestUpdateInPlace(t *testing.T) {
	for name, test := range map[string]struct {
		req   simcloud.UpdateInstanceRequest
		code  simcloud.ErrorCode
		state simcloud.InstanceState
		boots int
	}{
		"live":          {simcloud.UpdateInstanceRequest{Type: "medium"}, "", simcloud.StateRunning, 1},
		"stricter type": {simcloud.UpdateInstanceRequest{Type: "large"}, "", simcloud.StateRebooting, 2},
		"unsupported type": {simcloud.UpdateInstanceRequest{Type: "gpu"}, simcloud.CodeUnsupportedOperation,
			simcloud.StateRunning, 1},
		"other architecture": {simcloud.UpdateInstanceRequest{Type: "small-arm"}, simcloud.CodeUnsupportedOperation,
			simcloud.StateRunning, 1},
		"unknown type": {simcloud.UpdateInstanceRequest{Type: "huge"}, simcloud.CodeInvalidParameter,
			simcloud.StateRunning, 1},
		"image": {simcloud.UpdateInstanceRequest{Image: "sim-os-2"}, "", simcloud.StateRebooting, 2},
		"unsupported image": {simcloud.UpdateInstanceRequest{Image: "sim-os-immutable"},
			simcloud.CodeUnsupportedOperation, simcloud.StateRunning, 1},
		"one of two changes is refused": {simcloud.UpdateInstanceRequest{Type: "medium", Image: "sim-os-immutable"},
			simcloud.CodeUnsupportedOperation, simcloud.StateRunning, 1},
		"version": {simcloud.UpdateInstanceRequest{KubeletVersion: "v1.37.0"}, "", simcloud.StateRebooting, 2},
		"bad version": {simcloud.UpdateInstanceRequest{KubeletVersion: "1.37"}, simcloud.CodeInvalidParameter,
			simcloud.StateRunning, 1},
		"no change": {simcloud.UpdateInstanceRequest{Type: "small", Image: "sim-os-1"}, "",
			simcloud.StateRunning, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestCloud(t)
			inst := w.create()
			_, err := w.Update("alice", inst.ID, test.req)
			wantCode(t, err, simcloud.CodeConflict, "pending")
			w.pass(time.Second)
			before, _ := w.Get("alice", inst.ID)
			after, err := w.Update("alice", inst.ID, test.req)
			wantCode(t, err, test.code, "")
			w.wantState(inst.ID, test.state)
			if test.state == simcloud.StateRebooting {
				w.expectOn()
				w.pass(time.Second)
			}
			w.wantState(inst.ID, simcloud.StateRunning)
			w.expectOn(inst.ID)
			spec := w.hosts.on[inst.ID]
			if spec.Boots != test.boots {
				t.Errorf("%d boots, expected %d", spec.Boots, test.boots)
			}
			if err != nil {
				if now, _ := w.Get("alice", inst.ID); now.Type != before.Type || now.Image != before.Image ||
					now.KubeletVersion != before.KubeletVersion {
					t.Errorf("a refused update changed %+v", now)
				}
			} else if spec.Type.Name != after.Type || spec.Image.Name != after.Image ||
				spec.KubeletVersion != after.KubeletVersion {
				t.Errorf("the machine is %+v, the instance %+v", spec, after)
			}
			w.checkInvariants()
		})
	}
}

func TestRestartKeepsState(t *testing.T) {
	w := newTestCloud(t)
	booting := w.create(withToken("t1"), withTags("uid", "1"))
	w.pass(500 * time.Millisecond)
	ending := w.create()
	w.pass(400 * time.Millisecond)
	w.restart() // The restart closes nothing, as if the process had been killed.
	w.pass(100 * time.Millisecond)
	w.wantState(booting.ID, simcloud.StateRunning)
	w.wantState(ending.ID, simcloud.StatePending)
	if spec := w.hosts.on[booting.ID]; string(spec.UserData) != "#cloud-config\n" {
		t.Errorf("user data is %q", spec.UserData)
	}
	if err := w.hosts.reporters[booting.ID].Save(host.Disk{KeyPEM: []byte("key")}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Delete("alice", ending.ID); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.expectOn(booting.ID)
	if spec := w.hosts.on[booting.ID]; string(spec.Disk.KeyPEM) != "key" || spec.Boots != 1 {
		t.Errorf("the disk of the machine is lost: %+v", spec)
	}
	w.pass(time.Second)
	w.wantState(ending.ID, simcloud.StateTerminated)
	if same := w.create(withToken("t1"), withTags("uid", "1")); same.ID != booting.ID {
		t.Error("the token was forgotten")
	}
	list, err := w.List("alice", simcloud.ListInstancesOptions{Tags: map[string]string{"uid": "1"}})
	if err != nil || len(list.Instances) != 1 {
		t.Errorf("list by tag: %+v %v", list, err)
	}
	if third := w.create(); third.PrivateIPs[0] == booting.PrivateIPs[0] {
		t.Error("two instances have the same address")
	}
	if d := w.Dump(); d.InstancesCreated != 3 || d.Records[2].Sequence != 3 {
		t.Errorf("the sequence went back: %+v", d)
	}
	w.checkInvariants()
}

func TestReportsOfMachineThatIsOffAreIgnored(t *testing.T) {
	w := newTestCloud(t)
	inst := w.create()
	w.pass(time.Second)
	reporter := w.hosts.reporters[inst.ID]
	reporter.Print("hello\nworld")
	reporter.Report(simcloud.HostStatus{Phase: simcloud.HostJoined})
	w.applyFault(inst.ID, simcloud.FaultSilent)
	reporter.Print("after the end")
	reporter.Report(simcloud.HostStatus{Phase: simcloud.HostJoined})
	if err := reporter.Save(host.Disk{KeyPEM: []byte("x")}); err == nil {
		t.Error("a machine that is off saved its disk")
	}
	got, _ := w.Get("alice", inst.ID)
	if got.Host.Phase != simcloud.HostOff {
		t.Errorf("the status of the host is %+v", got.Host)
	}
	w.applyFault(inst.ID, simcloud.FaultRecovers)
	reporter.Print("after the end")
	w.restart()
	console, err := w.Console("alice", inst.ID)
	if err != nil {
		t.Fatal(err)
	}
	const want = "2030-01-01T00:00:01.000Z machine starts\n2030-01-01T00:00:01.000Z hello world\n2030-01-01T00:00:01.000Z machine starts\n"
	if console != want {
		t.Errorf("console:\n%swant:\n%s", console, want)
	}
}

func TestConsoleKeepsItsEnd(t *testing.T) {
	var s savedMachine
	for range 1000 {
		s.print(time.Unix(0, 0), "0123456789 0123456789 0123456789")
	}
	s.print(time.Unix(0, 0), "last")
	if len(s.Console) > maxConsoleBytes || s.Console[:5] != "1970-" || s.Console[len(s.Console)-5:] != "last\n" {
		t.Errorf("%d bytes: %q … %q", len(s.Console), s.Console[:40], s.Console[len(s.Console)-40:])
	}
}

func TestChangeThatCannotBeSavedIsRetried(t *testing.T) {
	w := newTestCloud(t)
	inst := w.create()
	open := w.journal
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Second)
	w.wantState(inst.ID, simcloud.StatePending)
	_, err := w.Delete("alice", inst.ID)
	wantCode(t, err, simcloud.CodeInternalError, "closed")
	_, err = w.Create("alice", request(), nil)
	wantCode(t, err, simcloud.CodeInternalError, "closed")
	if w.agenda[0].due != w.now().Add(retryCommit) {
		t.Errorf("the next attempt is at %s", w.agenda[0].due)
	}
	w.start()
	w.pass(time.Second)
	w.wantState(inst.ID, simcloud.StateRunning)
	w.checkInvariants()
}

func TestRunCarriesOutDueChanges(t *testing.T) {
	w := newTestCloud(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	inst := w.create() // This creation wakes Run.
	deadline := time.After(10 * time.Second)
	for w.state(inst.ID) != simcloud.StateRunning {
		select {
		case <-deadline:
			t.Fatal("the instance never ran")
		default:
			w.clock.Step(100 * time.Millisecond)
		}
	}
	cancel()
	<-done
}

func TestInvariantsHoldUnderRandomOperations(t *testing.T) {
	for seed := range uint64(8) {
		w := newTestCloud(t, func(c *catalog.Catalog) {
			c.Settings.TerminatedVisible = *seconds(3)
			c.Settings.TokenRetention = *seconds(6)
			most := 12
			c.Accounts[0].Quotas = map[string]simcloud.Quota{"sim-1": {MaxInstances: &most}}
		})
		r := rand.New(rand.NewPCG(seed, 0))
		var ids []string
		pick := func() string { return ids[r.IntN(len(ids))] }
		kinds := []simcloud.InstanceFaultKind{simcloud.FaultNeverBoots, simcloud.FaultNeverRegisters, simcloud.FaultDies,
			simcloud.FaultVanishes, simcloud.FaultSilent, simcloud.FaultRecovers, simcloud.FaultIgnoresShutdown,
			simcloud.FaultHangs}
		for range 300 {
			switch n := r.IntN(22); {
			case n < 5 || len(ids) == 0:
				req := request(withTags("n", string(rune('a'+r.IntN(5)))))
				if inst, err := w.Create("alice", req, nil); err == nil {
					ids = append(ids, inst.ID)
				}
			case n < 8:
				_, _ = w.Delete("alice", pick()) // The instance may be gone already.
			case n < 10:
				_, _ = w.AddFault(pick(), simcloud.InstanceFault{Kind: kinds[r.IntN(len(kinds))],
					After: simcloud.Duration(r.IntN(3)) * simcloud.Duration(time.Second)})
			case n < 12:
				_, _ = w.Update("alice", pick(),
					simcloud.UpdateInstanceRequest{Type: []string{"small", "medium", "large"}[r.IntN(3)]})
			case n < 14:
				_, _ = w.UpdateTags("alice", pick(),
					simcloud.UpdateTagsRequest{Set: map[string]string{"n": string(rune('a' + r.IntN(5)))}})
			case n < 15:
				keeps := r.IntN(2) == 0
				w.set(simcloud.SettingsPatch{ReadLag: seconds(r.IntN(3)),
					Semantics: &simcloud.SemanticsPatch{QuotaLag: seconds(r.IntN(3)), KeepAddresses: &keeps}})
			case n < 16:
				w.restart()
			case n < 17:
				// Usually this address does not exist.
				_ = w.DeleteAddress("alice", addressPrefix+strings.TrimPrefix(pick(), instancePrefix))
			case n < 18: // The state of the instance may not allow this.
				_, _ = w.Stop("alice", pick(),
					simcloud.StopInstanceRequest{Force: r.IntN(2) == 0, ReleaseCapacity: r.IntN(2) == 0})
			case n < 19:
				_, _ = w.Start("alice", pick())
			default:
				w.pass(time.Duration(r.IntN(3000)) * time.Millisecond)
			}
			w.checkInvariants()
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}
