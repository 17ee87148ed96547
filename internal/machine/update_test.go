package machine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

// scriptedUpdates replaces the method Update of a driver. This Update returns the given answers one after another,
// and then repeats the last answer.
type scriptedUpdates struct {
	given []provider.UpdateResult
	errs  []error
	asked []provider.UpdateRequest
}

func (a *scriptedUpdates) update(req provider.UpdateRequest) (provider.UpdateResult, error) {
	a.asked = append(a.asked, req)
	if len(a.errs) > 0 {
		err := a.errs[0]
		a.errs = a.errs[1:]
		return provider.UpdateResult{}, err
	}
	answer := a.given[0]
	if len(a.given) > 1 {
		a.given = a.given[1:]
	}
	return answer, nil
}

// changed returns a running Machine whose class has been changed from "small" to "large", so that it needs an update.
func changed(t *testing.T, a *scriptedUpdates) (*world, *v1beta1.Machine) {
	t.Helper()
	w := newWorld(t)
	w.cloud.OnUpdate = a.update
	w.class("small", "")
	w.class("large", "")
	m := w.running("m")
	w.update("m", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name, m.Spec.Version = "large", "v1.36.4" })
	return w, m
}

// Rule: update-in-place.
func TestAChangeInPlace(t *testing.T) {
	t.Parallel()
	a := &scriptedUpdates{given: []provider.UpdateResult{{Outcome: provider.UpdateDone}}}
	w, before := changed(t, a)
	w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineRunning)
	w.wantCondition(m, v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate)
	w.wantCondition(m, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonMachineReady)
	if m.Spec.ProviderID != before.Spec.ProviderID || m.LaunchAttempt() != 1 {
		t.Errorf("the instance is %s of attempt %d, but it was %s before", m.Spec.ProviderID, m.LaunchAttempt(), before.Spec.ProviderID)
	}
	if m.Status.Applied.ClassName != "large" || m.Status.Applied.Version != "v1.36.4" {
		t.Errorf("applied is %+v", m.Status.Applied)
	}
	if len(a.asked) != 1 || a.asked[0].Version != "v1.36.4" || a.asked[0].ProviderID != before.Spec.ProviderID ||
		a.asked[0].NodeDrained {
		t.Errorf("the driver was asked %+v", a.asked)
	}
	w.wantRest("m")
}

// A Machine without a class is updated when its own providerSpec changes.
//
// Rule: update-in-place.
func TestAChangeOfAnInlineProviderSpec(t *testing.T) {
	t.Parallel()
	a := &scriptedUpdates{given: []provider.UpdateResult{{Outcome: provider.UpdateDone}}}
	w := newWorld(t)
	w.cloud.OnUpdate = a.update
	w.create(w.withFinalizer(w.secret("cloud", "token", "hunter2")))
	before := w.running("m", func(m *v1beta1.Machine) {
		m.Spec.ClassRef, m.Spec.Provider = nil, w.cloud.ProviderName
		m.Spec.ProviderSpec = &runtime.RawExtension{Raw: []byte(`{"kind":"Fake"}`)}
		m.Spec.CredentialsRef = &v1beta1.LocalRef{Name: "cloud"}
	})
	const larger = `{"kind":"Fake","size":"large"}`
	w.update("m", func(m *v1beta1.Machine) { m.Spec.ProviderSpec.Raw = []byte(larger) })
	w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineRunning)
	w.wantCondition(m, v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate)
	if len(a.asked) != 1 || string(a.asked[0].Class.Spec) != larger || m.Spec.ProviderID != before.Spec.ProviderID {
		t.Errorf("the driver was asked %+v, and the provider ID is %s", a.asked, m.Spec.ProviderID)
	}
	if m.Status.Applied.ProviderSpecHash == before.Status.Applied.ProviderSpecHash {
		t.Errorf("applied is %+v, as before the update", m.Status.Applied)
	}
	w.wantRest("m")
}

// Rule disruptive-update-drains: the node is drained before the update and is uncordoned when it is Ready again.
func TestAChangeInPlaceThatNeedsADrain(t *testing.T) {
	t.Parallel()
	needsDrain := provider.UpdateResult{Outcome: provider.UpdateNeedsDrain}
	a := &scriptedUpdates{given: []provider.UpdateResult{needsDrain, needsDrain,
		{Outcome: provider.UpdateInProgress}, {Outcome: provider.UpdateInProgress}, {Outcome: provider.UpdateDone}}}
	w, before := changed(t, a)

	w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineUpdating)
	w.wantCondition(m, v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonUpdating)
	if c := w.wantCondition(m, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonUpdating); c.Message == "" {
		t.Error("the condition Ready has no message")
	}
	if node := w.getNode(nodeNameOf(w.namespace, "m")); !node.Spec.Unschedulable {
		t.Error("the node is not cordoned for the update")
	}
	// During the update, the node restarts and is not Ready for some time.
	w.setNodeReady(nodeNameOf(w.namespace, "m"), corev1.ConditionFalse)
	w.step(10 * time.Second)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineUpdating)
	w.setNodeReady(nodeNameOf(w.namespace, "m"), corev1.ConditionTrue)
	w.step(10 * time.Second)
	w.reconcile("m")

	m = w.get("m")
	w.wantPhase(m, v1beta1.MachineRunning)
	w.wantCondition(m, v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate)
	if node := w.getNode(nodeNameOf(w.namespace, "m")); node.Spec.Unschedulable {
		t.Error("the node is still cordoned after the update")
	}
	if m.Spec.ProviderID != before.Spec.ProviderID {
		t.Errorf("the instance is %s, but it was %s before", m.Spec.ProviderID, before.Spec.ProviderID)
	}
	if n := len(a.asked); n != 5 || a.asked[0].NodeDrained || a.asked[1].NodeDrained || !a.asked[2].NodeDrained ||
		!a.asked[n-1].NodeDrained {
		t.Errorf("the driver was asked %+v", a.asked)
	}
	w.wantRest("m")
}

// Rules volumes-detached-first, disruptive-update-drains: a node is not disrupted while its volumes are attached, even
// if another process becomes the leader.
func TestAChangeInPlaceWaitsForTheVolumes(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(*world){
		"the same process": func(*world) {},
		"another process":  (*world).restart,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &scriptedUpdates{}
			w, before := changed(t, a)
			w.cloud.OnUpdate = func(req provider.UpdateRequest) (provider.UpdateResult, error) {
				a.given = []provider.UpdateResult{{Outcome: provider.UpdateNeedsDrain}}
				if req.NodeDrained {
					a.given[0].Outcome = provider.UpdateDone
				}
				return a.update(req)
			}
			w.attach(before.Status.NodeRef.Name, "db")
			w.reconcile("m")
			w.wantCondition(w.get("m"), v1beta1.ConditionVolumesDetached, metav1.ConditionFalse,
				v1beta1.ReasonWaitingForVolumeDetach)
			again(w)
			w.step(time.Second)
			w.reconcile("m")
			w.wantCondition(w.get("m"), v1beta1.ConditionVolumesDetached, metav1.ConditionFalse,
				v1beta1.ReasonWaitingForVolumeDetach)
			if slices.ContainsFunc(a.asked, func(r provider.UpdateRequest) bool { return r.NodeDrained }) {
				t.Error("the driver was told that the node is drained, but a volume is attached to it")
			}
			w.detach(t.Context(), "db")
			w.settleDrains("m")
			w.reconcile("m")
			w.step(w.cloud.CreateSettle()) // A request of another process may take effect late.
			w.reconcile("m")
			m := w.get("m")
			w.wantCondition(m, v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate)
			w.wantPhase(m, v1beta1.MachineRunning)
		})
	}
}

// The driver gets the same request until the update is done, also if there is no node to drain or its volumes cannot be
// detached.
//
// Rule: disruptive-update-drains.
func TestRequestForADrainedUpdateIsRepeated(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		options []func(*world)
		before  func(*world)
	}{
		"no target cluster": {options: []func(*world){noTarget}},
		"no node":           {},
		"unreachable node": {before: func(w *world) {
			w.node("m", true)
			w.untilPhase("m", v1beta1.MachineRunning)
			w.setNodeReady(nodeNameOf(w.namespace, "m"), corev1.ConditionUnknown)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tc.options...)
			drained := 0
			w.cloud.OnUpdate = func(req provider.UpdateRequest) (provider.UpdateResult, error) {
				if req.NodeDrained {
					drained++
					return provider.UpdateResult{Outcome: provider.UpdateInProgress}, nil
				}
				if drained > 0 {
					t.Errorf("the request after %d requests for a drained node says that the node is not drained", drained)
				}
				return provider.UpdateResult{Outcome: provider.UpdateNeedsDrain}, nil
			}
			w.class("small", "")
			w.createMachine("m")
			w.reconcile("m")
			w.reconcile("m")
			if tc.before != nil {
				tc.before(w)
			}
			w.update("m", func(m *v1beta1.Machine) { m.Spec.Version = newVersion })
			for range 5 {
				w.reconcile("m")
				if !w.noTarget {
					w.settleDrains("m")
				}
				w.step(10 * time.Second)
			}
			if drained < 3 {
				t.Errorf("the driver got %d requests for a drained node, want at least 3", drained)
			}
		})
	}
}

// Rule: replacement-deletes-first.
func TestAChangeByReplacement(t *testing.T) {
	t.Parallel()
	a := &scriptedUpdates{given: []provider.UpdateResult{{Outcome: provider.UpdateNeedsReplacement,
		Reason: "of another size"}}}
	w, before := changed(t, a)
	w.reconcile("m")
	if live := w.cloud.LiveInstances(); len(live) != 1 || live[0].ProviderID == before.Spec.ProviderID {
		t.Errorf("instances after the replacement: %+v", live)
	}
	w.node("m", true)
	w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineRunning)
	w.wantCondition(m, v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate)
	if m.UID != before.UID || m.LaunchAttempt() != 2 || m.Status.Launch.Step != v1beta1.LaunchStepNone ||
		m.Status.Applied.ClassName != "large" {
		t.Errorf("after the replacement: %s, launch %+v, applied %+v", summaryOf(m), m.Status.Launch, m.Status.Applied)
	}
	if m.Status.NodeRef.UID == before.Status.NodeRef.UID {
		t.Error("the machine still refers to the old node")
	}
	w.wantRest("m")
}

// Rule rejected-update-leaves-machine: a rejected update is reported, and is not requested again until something
// changes.
func TestARefusedChange(t *testing.T) {
	t.Parallel()
	a := &scriptedUpdates{given: []provider.UpdateResult{{Outcome: provider.UpdateRefused, Reason: "not of this family"}}}
	w, before := changed(t, a)
	w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineRunning)
	w.wantCondition(m, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonMachineReady)
	if c := w.wantCondition(m, v1beta1.ConditionUpToDate, metav1.ConditionFalse,
		v1beta1.ReasonUnsupportedChange); c.Message != "not of this family" {
		t.Errorf("the message is %q", c.Message)
	}
	w.wantRest("m")
	if len(a.asked) != 1 {
		t.Errorf("the driver was asked %d times", len(a.asked))
	}
	w.update("m", func(m *v1beta1.Machine) { m.Spec = before.Spec })
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate)
	if len(a.asked) != 1 {
		t.Errorf("the driver was asked %d times", len(a.asked))
	}
}

// Rule: failed-update-retried.
func TestAnUpdateThatFails(t *testing.T) {
	t.Parallel()
	a := &scriptedUpdates{given: []provider.UpdateResult{{Outcome: provider.UpdateDone}},
		errs: []error{provider.Errorf(provider.Unavailable, "away"), provider.Errorf(provider.Unavailable, "away")}}
	w, _ := changed(t, a)
	first := w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineRunning)
	w.wantCondition(m, v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonUpdateError)
	w.reconcile("m") // The next attempt is not due, so the driver is not called.
	if len(a.asked) != 1 {
		t.Errorf("the driver was asked %d times before the wait was over", len(a.asked))
	}
	w.step(first.RequeueAfter)
	second := w.reconcile("m")
	if second.RequeueAfter <= first.RequeueAfter {
		t.Errorf("the second wait, %s, is not longer than the first, %s", second.RequeueAfter, first.RequeueAfter)
	}
	w.step(second.RequeueAfter)
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate)
	w.wantRest("m")
}

// Rule: failed-update-retried.
func TestAnUpdateThatTakesTooLong(t *testing.T) {
	t.Parallel()
	a := &scriptedUpdates{given: []provider.UpdateResult{{Outcome: provider.UpdateInProgress}}}
	w, _ := changed(t, a)
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonUpdating)
	w.step(v1beta1.DefaultUpdateTimeout + time.Second)
	if result := w.reconcile("m"); result.RequeueAfter == 0 {
		t.Error("the machine is not requeued")
	}
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonUpdateTimeout)
}

// Rule: paused-machine-untouched.
func TestAPausedMachineIsNotUpdated(t *testing.T) {
	t.Parallel()
	a := &scriptedUpdates{given: []provider.UpdateResult{{Outcome: provider.UpdateDone}}}
	w, _ := changed(t, a)
	w.annotate("m", v1beta1.AnnotationPaused)
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonUpdatePending)
	if len(a.asked) != 0 {
		t.Errorf("the driver was asked %d times", len(a.asked))
	}
}

// Rule update-recorded-first: the answer to the request was lost, and the request may take effect late.
func TestRevertedChangeWithUnknownResultIsRevertedInTheCloud(t *testing.T) {
	t.Parallel()
	lost := provider.Errorf(provider.DeadlineExceeded, "no answer")
	for name, c := range map[string]struct {
		fails error
		again func(*world)
	}{
		"in the same process": {lost, func(*world) {}},
		"in another process":  {nil, (*world).restart},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			w.running("m")
			version, asked := "", 0
			w.cloud.OnUpdate = func(req provider.UpdateRequest) (provider.UpdateResult, error) {
				if asked++; asked == 1 {
					if live := w.get("m"); !updateRequested(live) {
						t.Errorf("the provider was asked before the status recorded the request: %+v", live.Status)
					}
					version = req.Version
					if c.fails == nil {
						w.update("m", func(m *v1beta1.Machine) { m.Spec.Version = "" }) // so that the result is not written
					}
					return provider.UpdateResult{Outcome: provider.UpdateDone}, c.fails
				}
				version = req.Version
				return provider.UpdateResult{Outcome: provider.UpdateDone}, nil
			}
			w.update("m", func(m *v1beta1.Machine) { m.Spec.Version = "v1.36.4" })
			w.reconcile("m")
			if w.get("m").Spec.Version != "" {
				w.update("m", func(m *v1beta1.Machine) { m.Spec.Version = "" })
			}
			c.again(w)
			w.reconcile("m")
			if version != "" {
				t.Errorf("the instance has version %q after the change was reverted", version)
			}
			w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonUpdating)
			version = "v1.36.4" // The first request takes effect late.
			w.step(w.cloud.CreateSettle())
			w.reconcile("m")
			if version != "" {
				t.Errorf("the instance has version %q after the first request took effect late", version)
			}
			w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate)
			w.wantRest("m")
		})
	}
}

// Rule: update-recorded-first.
func TestLateCacheRequestsNoUpdate(t *testing.T) {
	t.Parallel()
	a := &scriptedUpdates{given: []provider.UpdateResult{{Outcome: provider.UpdateDone}}}
	w, _ := changed(t, a)
	late := w.get("m")
	meta.SetStatusCondition(&late.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionUpToDate,
		Status: metav1.ConditionFalse, Reason: v1beta1.ReasonUpdating})
	w.update("m", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name, m.Spec.Version = "small", "" })
	p := newPass(w.process, w.cloud.Name(), late, w.clock.Now(), time.Time{})
	if _, err := p.ensureUpToDate(t.Context()); !errors.Is(err, errStale) {
		t.Errorf("the pass over a machine that changed in the meantime ended with %v", err)
	}
	if len(a.asked) != 0 {
		t.Errorf("the driver was asked %+v", a.asked)
	}
}

// Rule: made-from-former-specification.
func TestTheSpecificationChangesDuringTheLaunch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	var asked []string
	w.cloud.OnUpdate = func(req provider.UpdateRequest) (provider.UpdateResult, error) {
		asked = append(asked, req.Version)
		return provider.UpdateResult{Outcome: provider.UpdateDone}, nil
	}
	w.createMachine("m")
	w.cloud.Script("Create", fakecloud.Step{During: func() { // so that the provider ID cannot be written
		w.update("m", func(m *v1beta1.Machine) { m.Spec.Version = "v1.36.4" })
	}})
	w.reconcile("m")
	w.runUntil("m", "the update", func() bool {
		m := w.get("m")
		return m.Spec.ProviderID != "" && m.Status.Applied != nil && m.Status.Applied.Version == "v1.36.4"
	})
	if !slices.Equal(asked, []string{"v1.36.4"}) {
		t.Errorf("the driver was asked for the versions %q", asked)
	}
}

// Rule: lost-configuration-is-reported.
func TestLostStatusAppliedIsRestoredOrReported(t *testing.T) {
	t.Parallel()
	a := &scriptedUpdates{given: []provider.UpdateResult{{Outcome: provider.UpdateDone}}}
	w := newWorld(t)
	w.cloud.OnUpdate = a.update
	w.class("small", "")
	w.class("large", "")
	before := w.running("m")
	lose := func() {
		t.Helper()
		m := w.get("m")
		m.Status.Applied = nil
		if err := w.api.Status().Update(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	lose()
	w.reconcile("m")
	if got := w.get("m").Status.Applied; got == nil || *got != *before.Status.Applied {
		t.Errorf("for an unchanged spec: got status.applied %+v, want %+v", got, before.Status.Applied)
	}
	lose()
	w.update("m", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "large" })
	w.reconcile("m")
	c := w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonUpdateError)
	if !strings.Contains(c.Message, v1beta1.AnnotationReplace) || len(a.asked) > 0 {
		t.Errorf("for a changed spec: got the message %q and the updates %+v, want the annotation and no update", c.Message, a.asked)
	}
	w.wantRest("m")
}
