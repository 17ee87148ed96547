package machine

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/platform/queueing"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

// narrow returns a world with one slot for creations, and the queue to which its triggers add Machines.
func narrow(t *testing.T) (*world, workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	t.Helper()
	w := newWorld(t)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	slots := queueing.NewSlots(1)
	if err := slots.Source().Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	w.options.Slots = slots
	w.options.Classes = &countedClasses{Classes: w.options.Classes, resolved: map[string]int{}}
	w.restart()
	w.class("small", "")
	return w, queue
}

// countedClasses counts how often the inputs of each machine were read, including the Secrets.
type countedClasses struct {
	Classes
	resolved map[string]int
}

func (c *countedClasses) Resolve(ctx context.Context, m *v1beta1.Machine) (resolve.Inputs, error) {
	c.resolved[m.Name]++
	return c.Classes.Resolve(ctx, m)
}

func (w *world) wantEnqueued(queue workqueue.TypedRateLimitingInterface[reconcile.Request], name string) {
	w.t.Helper()
	if queue.Len() != 1 {
		w.t.Fatalf("%d machines are triggered, want %s", queue.Len(), name)
	}
	request, _ := queue.Get()
	queue.Done(request)
	if request.Name != name {
		w.t.Fatalf("%s is triggered, want %s", request.Name, name)
	}
}

// Rule: creations-in-flight-limited.
func TestMachineWithoutASlotWaitsWithoutFailing(t *testing.T) {
	t.Parallel()
	w, queue := narrow(t)
	w.cloud.Boot = time.Hour
	w.createMachine("first")
	w.createMachine("second", func(m *v1beta1.Machine) { m.Spec.Timeouts.Creation = &metav1.Duration{Duration: 5 * time.Minute} })
	w.reconcile("first")
	if again := w.wantQuiet("second").RequeueAfter; again != silentWait {
		t.Errorf("the waiting machine is requeued after %s", again)
	}
	want(t, "driver calls for the waiting machine", w.effects.calls())

	w.step(silentWait)
	w.reconcile("second")
	w.wantCondition(w.get("second"), v1beta1.ConditionLaunched, metav1.ConditionFalse, v1beta1.ReasonPending)
	w.step(15 * time.Minute) // This is longer than the machine's time to become a node.
	if again := w.wantQuiet("second").RequeueAfter; again != 0 {
		t.Errorf("a machine that waits for a trigger is requeued after %s", again)
	}
	w.wantPhase(w.get("second"), v1beta1.MachinePending)
	want(t, "events", w.events.take())
	if n := w.options.Classes.(*countedClasses).resolved["second"]; n != 0 {
		t.Errorf("the inputs of the waiting machine, including its Secrets, were read %d times", n)
	}

	w.cloud.Boot = 0
	w.reconcile("first")
	w.wantEnqueued(queue, "second")
	w.cloud.Boot = time.Hour
	w.reconcile("second")
	w.wantPhase(w.get("second"), v1beta1.MachineProvisioned)
	w.step(4 * time.Minute) // The machine's time to join began with its slot.
	w.reconcile("second")
	w.wantPhase(w.get("second"), v1beta1.MachineProvisioned)
}

// Rule: creations-in-flight-limited.
func TestSlotIsFreeWhenItsCreationHasEnded(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*world){
		"the instance runs": func(w *world) { w.cloud.Boot = 0; w.reconcile("first") },
		"the instance failed": func(w *world) {
			w.cloud.SetState(w.get("first").Spec.ProviderID, provider.StateFailed, "no disk")
			w.reconcile("first")
		},
		"the instance vanished": func(w *world) {
			w.cloud.Vanish(w.get("first").Spec.ProviderID)
			w.untilPhase("first", v1beta1.MachineFailed)
		},
		"the node is ready": func(w *world) { w.node("first", true); w.reconcile("first") },
		"the node registered": func(w *world) {
			w.node("first", false)
			w.step(2 * registrationGrace)
			w.reconcile("first")
		},
		"the machine timed out":  func(w *world) { w.step(time.Hour); w.reconcile("first") },
		"the machine is deleted": func(w *world) { w.delete("first"); w.reconcile("first") },
		"the machine belongs to another provider": func(w *world) {
			w.writeStatus("first", func(s *v1beta1.MachineStatus) {
				if s.Instance != nil {
					// Without this change, the instance would still name the provider of this process.
					s.Instance.Provider = "other"
				}
			})
			w.update("first", func(m *v1beta1.Machine) { m.Labels[v1beta1.LabelProvider] = "other" })
			w.reconcile("first")
		},
		"the machine is gone": func(w *world) {
			w.update("first", func(m *v1beta1.Machine) { m.Finalizers = nil })
			w.delete("first")
			w.reconcile("first")
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w, queue := narrow(t)
			w.cloud.Boot = 2 * time.Hour
			w.createMachine("first")
			w.createMachine("second")
			w.reconcile("first")
			w.reconcile("second")
			w.reconcile("first")
			if queue.Len() != 0 {
				t.Fatal("a machine is triggered while no slot is free")
			}
			end(w)
			w.wantEnqueued(queue, "second")
			w.reconcile("second")
			if w.get("second").Spec.ProviderID == "" {
				t.Errorf("the machine has no instance although a slot is free: %s", summaryOf(w.get("second")))
			}
		})
	}
}

// Rule: creations-in-flight-limited.
func TestFailedCreationReleasesItsSlot(t *testing.T) {
	t.Parallel()
	w, queue := narrow(t)
	w.createMachine("first")
	w.createMachine("second")
	w.cloud.Script("Create", fakecloud.Step{Err: provider.Errorf(provider.ResourceExhausted, "no capacity"), During: func() {
		if w.options.Slots.Acquire(client.ObjectKey{Namespace: w.namespace, Name: "second"}) {
			t.Error("a slot is free while a call is under way")
		}
	}})
	retry := w.reconcile("first").RequeueAfter
	w.wantEnqueued(queue, "second")
	w.cloud.Boot = time.Hour
	w.reconcile("second")
	w.wantPhase(w.get("second"), v1beta1.MachineProvisioned)
	w.step(retry)
	w.wantQuiet("first")
	w.wantCondition(w.get("first"), v1beta1.ConditionLaunched, metav1.ConditionFalse, v1beta1.ReasonInsufficientResources)
}

// Rule: creations-in-flight-limited.
func TestNewProcessCountsRunningCreations(t *testing.T) {
	t.Parallel()
	w, _ := narrow(t)
	w.cloud.Boot = time.Hour
	w.createMachine("first")
	w.createMachine("second")
	w.reconcile("first")
	w.options.Slots = queueing.NewSlots(1)
	w.restart()
	w.reconcile("first")
	w.wantQuiet("second")
	if made := len(w.cloud.Requests()); made != 1 {
		t.Errorf("%d instances were requested", made)
	}
}

// Rule: creations-in-flight-limited.
func TestMachinesThatWaitForASlotAreTriggeredInARealManager(t *testing.T) {
	const machines = 8
	w := managedWorld(t, func(o *Options) { o.Slots = queueing.NewSlots(1) })
	w.class("small", "")
	for i := range machines {
		w.createMachine(fmt.Sprint("m-", i))
	}
	w.await("machines with an instance", machines, inPhase(v1beta1.MachineProvisioned))
}
