package cloud

import (
	"testing"
	"time"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/host"
)

func (w *testCloud) stop(id string, req simcloud.StopInstanceRequest) {
	w.t.Helper()
	if _, err := w.Stop("alice", id, req); err != nil {
		w.t.Fatal(err)
	}
}

func TestStopAndStart(t *testing.T) {
	w := newTestCloud(t)
	inst := w.create()
	_, err := w.Stop("alice", inst.ID, simcloud.StopInstanceRequest{})
	wantCode(t, err, simcloud.CodeConflict, "pending")
	w.pass(time.Second)
	if err := w.hosts.reporters[inst.ID].Save(host.Disk{KeyPEM: []byte("key")}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // A repeated request changes nothing.
		w.stop(inst.ID, simcloud.StopInstanceRequest{})
		w.wantState(inst.ID, simcloud.StateStopping)
		w.expectOn(inst.ID)
		w.pass(500 * time.Millisecond)
	}
	_, err = w.Stop("bob", inst.ID, simcloud.StopInstanceRequest{})
	wantCode(t, err, simcloud.CodeNotFound, "")
	w.wantState(inst.ID, simcloud.StateStopped)
	w.expectOn()
	w.stop(inst.ID, simcloud.StopInstanceRequest{})
	w.restart()
	w.wantState(inst.ID, simcloud.StateStopped)
	for range 2 {
		if _, err := w.Start("alice", inst.ID); err != nil {
			t.Fatal(err)
		}
		w.wantState(inst.ID, simcloud.StateStarting)
		w.expectOn()
		w.pass(500 * time.Millisecond)
	}
	w.wantState(inst.ID, simcloud.StateRunning)
	w.expectOn(inst.ID)
	// With its disk, the kubelet registers the same Node again. The number of boots determines the boot ID.
	if spec := w.hosts.on[inst.ID]; spec.Boots != 2 || string(spec.Disk.KeyPEM) != "key" {
		t.Errorf("the machine starts with %d boots and the disk %+v", spec.Boots, spec.Disk)
	}
	after, err := w.Start("alice", inst.ID)
	if err != nil || after.State != simcloud.StateRunning || after.PrivateIPs[0] != inst.PrivateIPs[0] {
		t.Errorf("started again: %+v, %v", after, err)
	}
	w.checkInvariants()
}

func TestShutdownIsIgnored(t *testing.T) {
	w := newTestCloud(t)
	inst := w.createWith([]simcloud.InstanceFault{{Kind: simcloud.FaultIgnoresShutdown}})
	w.pass(time.Second)
	w.stop(inst.ID, simcloud.StopInstanceRequest{})
	w.pass(time.Second)
	w.wantState(inst.ID, simcloud.StateRunning)
	w.expectOn(inst.ID)
	// A request with Force also has an effect while a request without Force is in progress.
	w.stop(inst.ID, simcloud.StopInstanceRequest{})
	w.stop(inst.ID, simcloud.StopInstanceRequest{Force: true})
	w.stop(inst.ID, simcloud.StopInstanceRequest{})
	w.pass(time.Second)
	w.wantState(inst.ID, simcloud.StateStopped)
	w.expectOn()
	w.checkInvariants()
}

func TestHungMachineContinuesAfterBoot(t *testing.T) {
	w := newTestCloud(t)
	inst := w.create()
	w.pass(time.Second)
	w.applyFault(inst.ID, simcloud.FaultHangs)
	w.expectOn()
	w.stop(inst.ID, simcloud.StopInstanceRequest{})
	w.pass(time.Second)
	w.wantState(inst.ID, simcloud.StateRunning)
	w.expectOn()
	w.stop(inst.ID, simcloud.StopInstanceRequest{Force: true})
	w.pass(time.Second)
	w.wantState(inst.ID, simcloud.StateStopped)
	if _, err := w.Start("alice", inst.ID); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Second)
	w.wantState(inst.ID, simcloud.StateRunning)
	w.expectOn(inst.ID)
	w.checkInvariants()
}

func TestForceStopsBootingInstance(t *testing.T) {
	w := newTestCloud(t)
	inst := w.createWith([]simcloud.InstanceFault{{Kind: simcloud.FaultNeverBoots}})
	w.stop(inst.ID, simcloud.StopInstanceRequest{Force: true})
	_, err := w.Start("alice", inst.ID)
	wantCode(t, err, simcloud.CodeConflict, "stopping")
	w.pass(time.Second)
	w.wantState(inst.ID, simcloud.StateStopped)
	w.applyFault(inst.ID, simcloud.FaultRecovers)
	w.pass(time.Second)
	w.wantState(inst.ID, simcloud.StateRunning)
	w.checkInvariants()
}

func TestDeleteWhileStopping(t *testing.T) {
	w := newTestCloud(t)
	inst := w.create()
	w.pass(time.Second)
	w.stop(inst.ID, simcloud.StopInstanceRequest{})
	if _, err := w.Delete("alice", inst.ID); err != nil {
		t.Fatal(err)
	}
	_, err := w.Stop("alice", inst.ID, simcloud.StopInstanceRequest{Force: true})
	wantCode(t, err, simcloud.CodeConflict, "shutting-down")
	_, err = w.Start("alice", inst.ID)
	wantCode(t, err, simcloud.CodeConflict, "shutting-down")
	w.pass(time.Second)
	w.wantState(inst.ID, simcloud.StateTerminated)
	w.checkInvariants()
}

func TestReleasedCapacity(t *testing.T) {
	w := newTestCloud(t)
	one := 1
	if err := w.SetCapacity("sim-1", "sim-1a", "small", &one); err != nil {
		t.Fatal(err)
	}
	for _, release := range []bool{false, true} {
		inst := w.create()
		w.pass(time.Second)
		w.stop(inst.ID, simcloud.StopInstanceRequest{ReleaseCapacity: release})
		_, err := w.Create("alice", request(), nil)
		wantCode(t, err, simcloud.CodeInsufficientCapacity, "") // Capacity stays in use until the instance is stopped.
		w.pass(time.Second)
		w.restart()
		other, err := w.Create("alice", request(), nil)
		if !release {
			wantCode(t, err, simcloud.CodeInsufficientCapacity, "")
			if _, err := w.Start("alice", inst.ID); err != nil {
				t.Error(err)
			}
		} else {
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.Start("alice", inst.ID)
			wantCode(t, err, simcloud.CodeInsufficientCapacity, "")
			w.wantState(inst.ID, simcloud.StateStopped)
			if _, err := w.Delete("alice", other.ID); err != nil {
				t.Fatal(err)
			}
			w.pass(time.Second)
			if _, err := w.Start("alice", inst.ID); err != nil {
				t.Error(err)
			}
		}
		w.checkInvariants()
		if _, err := w.Delete("alice", inst.ID); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Second)
	}
}
