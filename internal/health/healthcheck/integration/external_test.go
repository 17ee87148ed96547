package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"

	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/remediator"
)

// The remediation has the content that the operators of Medik8s expect. It is deleted when the machine is healthy,
// and the operator then cleans up.
//
// Rules: external-remediation-contract, one-remediation-per-machine, remediations-read-when-needed.
func TestOperatorRemediatesMachine(t *testing.T) {
	b := newRemediatorBench(t)
	c := b.check(b.leave(remediator.SelfNode, 10*time.Minute, ""))
	machines := b.machines(3)
	b.pass()
	b.wantTemplate(c, v1beta1.ReasonTemplateReady, "")
	b.silence(machines[0])
	b.advance(5*time.Minute - time.Second)
	b.wantNoRemediation()
	b.advance(time.Second)
	b.pass()
	if mark := b.mark(machines[0]); mark == nil || mark.Reason != v1beta1.ReasonExternalRemediation {
		t.Fatalf("the mark is %+v", mark)
	}
	o := b.remediation()
	node := machines[0].Status.NodeRef
	spec, _, err := unstructured.NestedMap(o.Object, "spec")
	b.must(err)
	if o.GroupVersionKind() != remediator.SelfNode || o.GetName() != node.Name || o.GetNamespace() != b.namespace ||
		fmt.Sprint(spec) != "map[remediationStrategy:ResourceDeletion retries:3]" || len(o.GetOwnerReferences()) != 0 {
		t.Errorf("the remediation is %+v", o)
	}
	for key, want := range map[string]string{"remediation.medik8s.io/node-name": node.Name,
		"remediation.medik8s.io/template-name": remediator.TemplateName} {
		if got := o.GetAnnotations()[key]; got != want {
			t.Errorf("annotation %s is %q, want %q", key, got, want)
		}
	}
	if o.GetLabels()["machinist.dev/machine-uid"] != string(machines[0].UID) {
		t.Errorf("labels %v", o.GetLabels())
	}
	b.operate(metav1.ConditionUnknown)
	b.advance(time.Minute)
	b.wantNoWrites()
	if b.remediation().GetUID() != o.GetUID() {
		t.Error("the remediation was created again")
	}
	b.operate(metav1.ConditionTrue, machines[0])
	b.pass()
	b.wantMarked()
	if b.remediation().GetDeletionTimestamp() == nil {
		t.Error("the remediation of a healthy machine is not deleted")
	}
	b.operate(metav1.ConditionUnknown)
	b.wantNoRemediation()
	b.pass()
	b.wantNoWrites()
	b.advance(2 * time.Minute)
	if due := b.pass(); due != 0 {
		t.Errorf("long after the last remediation, the next pass is due after %s", due)
	}
	reported := strings.Join(b.reported(), "\n")
	for _, event := range []string{"Normal RemediationCreated Created SelfNodeRemediation",
		"Normal RemediationDeleted Deleted SelfNodeRemediation"} {
		if strings.Count(reported, event) != 1 {
			t.Errorf("%q is not reported once:\n%s", event, reported)
		}
	}
}

// The timeout is not shortened by a wrong creation time of the remediation, which comes from the API server's clock.
//
// Rule: external-remediation-ends.
func TestRemediationThatNeverEnds(t *testing.T) {
	for action, reason := range map[v1beta1.RemediationTimeoutAction]string{
		"":                       v1beta1.ReasonExternalRemediationFailed,
		v1beta1.OnTimeoutNone:    v1beta1.ReasonExternalRemediationFailed,
		v1beta1.OnTimeoutReplace: v1beta1.ReasonReplaceAfterRemediation,
	} {
		t.Run("onTimeout "+string(action), func(t *testing.T) {
			b := newRemediatorBench(t)
			b.check(b.leave(remediator.SelfNode, 20*time.Minute, action))
			m := b.machines(3)[0]
			b.startRemediation(m)
			b.operate(metav1.ConditionUnknown)
			b.advance(19 * time.Minute)
			b.wantReason(m, v1beta1.ReasonExternalRemediation)
			if _, found := b.remediation().GetAnnotations()[v1beta1.RemediationAnnotationTimedOut]; found {
				t.Error("the operator is told to stop before the timeout")
			}
			b.advance(time.Minute)
			b.wantReason(m, v1beta1.ReasonExternalRemediation) // The operator is told first.
			b.pass()
			b.wantReason(m, reason)
			value := b.remediation().GetAnnotations()[v1beta1.RemediationAnnotationTimedOut]
			if _, err := time.Parse(time.RFC3339, value); err != nil {
				t.Errorf("the annotation for the timeout: %v", err)
			}
			if mark := b.mark(m); !strings.Contains(mark.Message,
				"SelfNodeRemediation "+b.namespace+"/"+m.Status.NodeRef.Name+
					" has exceeded its timeout.") {
				t.Errorf("the message is %q", mark.Message)
			}
			b.operate(metav1.ConditionUnknown)
			b.restart() // The timeout of the remediation is recorded, so it does not start again.
			b.advance(5 * time.Minute)
			b.wantReason(m, reason)
			b.wantNoWrites()
			b.remediation()
		})
	}
}

// Rule: external-remediation-ends.
func TestFailedRemediation(t *testing.T) {
	b := newRemediatorBench(t)
	c := b.check(b.leave(remediator.SelfNode, 0, v1beta1.OnTimeoutReplace))
	machines := b.machines(8)
	m := machines[0]
	b.startRemediation(m)
	b.operate(metav1.ConditionFalse)
	b.pass()
	b.wantReason(m, v1beta1.ReasonReplaceAfterRemediation)
	if mark := b.mark(m); !strings.Contains(mark.Message, "failed: RemediationFinished.") {
		t.Errorf("the message is %q", mark.Message)
	}
	// The request remains if the remediation is lost, and no other remediation is created.
	b.must(b.c.Delete(b.ctx(), b.remediation()))
	b.operate(metav1.ConditionFalse)
	b.wantNoRemediation()
	b.advance(time.Minute)
	b.wantReason(m, v1beta1.ReasonReplaceAfterRemediation)
	b.wantNoRemediation()

	// With None, the machine is only reported. If a user deletes the remediation, another one is created.
	b.change(c, func(r *v1beta1.HealthCheckRemediation) { r.OnTimeout = v1beta1.OnTimeoutNone })
	b.pass()
	b.wantReason(m, v1beta1.ReasonExternalRemediationFailed)
	b.pass()
	b.wantReason(m, v1beta1.ReasonExternalRemediation)
	b.pass()
	b.operate(metav1.ConditionFalse)
	b.pass()
	b.wantReason(m, v1beta1.ReasonExternalRemediationFailed)
	b.wantNoWrites()

	// maxUnhealthy applies to the replacement.
	b.change(c, func(r *v1beta1.HealthCheckRemediation) { r.OnTimeout = v1beta1.OnTimeoutReplace })
	b.silence(machines[1:4]...)
	b.pass()
	b.wantMarked()
	b.remediation()
	b.recover(machines[1:4]...)
	b.pass()
	b.wantReason(m, v1beta1.ReasonReplaceAfterRemediation)
}

// Rule: external-remediation-needs-node.
func TestMachineWithoutNodeIsNotRemediated(t *testing.T) {
	for action, reason := range map[v1beta1.RemediationTimeoutAction]string{
		v1beta1.OnTimeoutNone:    v1beta1.ReasonExternalRemediationFailed,
		v1beta1.OnTimeoutReplace: v1beta1.ReasonReplaceAfterRemediation,
	} {
		b := newRemediatorBench(t)
		b.check(b.leave(remediator.SelfNode, time.Hour, action))
		m := b.machines(3)[0]
		b.pass()
		b.must(b.c.Delete(b.ctx(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Status.NodeRef.Name}}))
		is := b.read(m)
		b.condition(is, v1beta1.ConditionRegistered, false, v1beta1.ReasonNodeGone)
		b.must(b.c.Status().Update(b.ctx(), is))
		b.pass()
		b.advance(time.Second)
		b.wantReason(m, reason)
		b.wantNoRemediation()
		b.wantNoWrites()
	}
}

// Rule: remediation-deleted-with-its-reason.
func TestRemediationIsDeleted(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(b *bench, c *v1beta1.MachineHealthCheck, m *v1beta1.Machine)
		stays  bool
	}{
		"the machine is being deleted": {change: func(b *bench, _ *v1beta1.MachineHealthCheck, m *v1beta1.Machine) {
			is := b.read(m)
			is.Finalizers = []string{v1beta1.MachineFinalizer}
			b.must(b.c.Update(b.ctx(), is))
			b.must(b.c.Delete(b.ctx(), is))
			b.Cleanup(func() { b.release(is) })
		}},
		"the machine is gone": {change: func(b *bench, _ *v1beta1.MachineHealthCheck, m *v1beta1.Machine) {
			b.must(b.c.Delete(b.ctx(), m))
		}},
		"another machine has the name": {change: func(b *bench, _ *v1beta1.MachineHealthCheck, m *v1beta1.Machine) {
			b.must(b.c.Delete(b.ctx(), m))
			b.must(b.c.Create(b.ctx(), &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name},
				Spec: m.Spec}))
		}},
		"the check is deleted": {change: func(b *bench, c *v1beta1.MachineHealthCheck, _ *v1beta1.Machine) {
			b.must(b.c.Delete(b.ctx(), c))
		}},
		"the check does not select the machine": {change: func(b *bench, _ *v1beta1.MachineHealthCheck,
			m *v1beta1.Machine) {
			is := b.read(m)
			is.Labels = nil
			b.must(b.c.Update(b.ctx(), is))
		}},
		"the type changes": {change: func(b *bench, c *v1beta1.MachineHealthCheck, _ *v1beta1.Machine) {
			b.change(c, func(r *v1beta1.HealthCheckRemediation) { *r = v1beta1.HealthCheckRemediation{Type: "None"} })
		}},
		"the machine has skip-remediation": {change: func(b *bench, _ *v1beta1.MachineHealthCheck, m *v1beta1.Machine) {
			b.annotate(m, v1beta1.AnnotationSkipRemediation, "")
		}},
		"the node is another one": {change: func(b *bench, _ *v1beta1.MachineHealthCheck, m *v1beta1.Machine) {
			is := b.read(m)
			is.Status.NodeRef.UID = "another"
			b.must(b.c.Status().Update(b.ctx(), is))
		}},
		"the machine is paused": {stays: true, change: func(b *bench, _ *v1beta1.MachineHealthCheck, m *v1beta1.Machine) {
			b.annotate(m, v1beta1.AnnotationPaused, "")
			b.recover(m)
		}},
		"too many machines are unhealthy": {stays: true, change: func(b *bench, c *v1beta1.MachineHealthCheck,
			_ *v1beta1.Machine) {
			is := &v1beta1.MachineHealthCheck{}
			b.must(b.c.Get(b.ctx(), client.ObjectKeyFromObject(c), is))
			most("0")(is)
			b.must(b.c.Update(b.ctx(), is))
		}},
		"the target cluster is unreachable": {stays: true, change: func(b *bench, c *v1beta1.MachineHealthCheck,
			_ *v1beta1.Machine) {
			b.must(b.c.Delete(b.ctx(), c))
			b.stopped = "unreachable"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRemediatorBench(t)
			c := b.check(b.leave(remediator.SelfNode, time.Hour, ""))
			m := b.machines(3)[0]
			b.startRemediation(m)
			b.operate(metav1.ConditionUnknown)
			stale := newStaleCache(b)
			tc.change(b, c, m)
			b.restart()
			b.pass()
			if tc.stays {
				if b.remediation().GetDeletionTimestamp() != nil {
					t.Error("the remediation is being deleted")
				}
				return
			}
			if b.remediation().GetDeletionTimestamp() == nil {
				t.Fatal("the remediation is not being deleted")
			}
			b.operate(metav1.ConditionUnknown)
			b.wantNoRemediation()

			// An outdated cache creates no other remediation.
			b.options.Client, b.options.Nodes.CachedReader = stale.clientOf(b.options.Client), stale
			b.restart()
			b.pass()
			b.pass()
			b.wantNoRemediation()
		})
	}
}

// An outdated cache deletes no remediation.
//
// Rule: remediation-confirmed-live.
func TestStaleCacheDeletesNoRemediation(t *testing.T) {
	b := newRemediatorBench(t)
	m := b.machines(3)[0]
	c := b.check(func(c *v1beta1.MachineHealthCheck) { c.Spec.Remediation.Type = v1beta1.RemediationNone })
	healthy := newStaleCache(b)
	is := &v1beta1.MachineHealthCheck{}
	b.must(b.c.Get(b.ctx(), client.ObjectKeyFromObject(c), is))
	b.leave(remediator.SelfNode, time.Hour, "")(is)
	b.must(b.c.Update(b.ctx(), is))
	otherCheck := newStaleCache(b)
	b.startRemediation(m)
	fresh := b.options.Client
	for _, stale := range []*staleCache{healthy, otherCheck} {
		b.options.Client, b.options.Nodes.CachedReader = stale.clientOf(fresh), stale
		b.restart()
		_, err := b.health.Reconcile(b.ctx(), reconcile.Request{})
		if err = client.IgnoreNotFound(err); err != nil && !strings.Contains(err.Error(), "modified") {
			t.Fatal(err)
		}
		if b.remediation().GetDeletionTimestamp() != nil {
			t.Fatal("the remediation is being deleted")
		}
	}
}

// While the check in the cache is outdated, more machines may be unhealthy than the cache shows.
//
// Rule: one-remediation-per-machine.
func TestStaleCacheCreatesNoRemediation(t *testing.T) {
	b := newRemediatorBench(t)
	c := b.check(b.leave(remediator.SelfNode, time.Hour, ""))
	b.startRemediation(b.machines(3)[0])
	b.must(b.options.Remediators.Client.Delete(b.ctx(), b.remediation()))
	b.wantNoRemediation()
	fresh, nodes, stale := b.options.Client, b.options.Nodes.CachedReader, newStaleCache(b)
	changed := &v1beta1.MachineHealthCheck{}
	b.must(b.c.Get(b.ctx(), client.ObjectKeyFromObject(c), changed))
	changed.Annotations = map[string]string{"example.com/changed": ""}
	b.must(b.c.Update(b.ctx(), changed))
	b.options.Client, b.options.Nodes.CachedReader = stale.clientOf(fresh), stale
	b.restart()
	for range 3 {
		_, err := b.health.Reconcile(b.ctx(), reconcile.Request{})
		if err != nil && !strings.Contains(err.Error(), "modified") {
			t.Fatal(err)
		}
		b.clock.Step(5 * time.Minute)
	}
	b.wantNoRemediation()
	b.options.Client, b.options.Nodes.CachedReader = fresh, nodes
	b.restart()
	b.pass()
	b.advance(5 * time.Minute)
	b.pass()
	b.remediation()
}

// The remediation of another template is created when that of the first template is gone.
//
// Rule: one-remediation-per-machine.
func TestOtherTemplateReplacesRemediation(t *testing.T) {
	b := newRemediatorBench(t)
	c := b.check(b.leave(remediator.SelfNode, time.Hour, ""))
	m := b.machines(3)[0]
	b.startRemediation(m)
	b.operate(metav1.ConditionUnknown)
	is := &v1beta1.MachineHealthCheck{}
	b.must(b.c.Get(b.ctx(), client.ObjectKeyFromObject(c), is))
	b.leave(remediator.FenceAgents, time.Hour, "")(is)
	b.must(b.c.Update(b.ctx(), is))
	for range 3 {
		b.pass()
		if o := b.remediation(); o.GroupVersionKind() != remediator.SelfNode || o.GetDeletionTimestamp() == nil {
			t.Fatalf("the remediation is %v", o)
		}
	}
	b.operate(metav1.ConditionUnknown)
	b.pass()
	if o := b.remediation(); o.GroupVersionKind() != remediator.FenceAgents {
		t.Errorf("the remediation is %v", o)
	}
}

// Rule: external-remediation-problems.
func TestProblemsWithTemplateAreReported(t *testing.T) {
	missing := schema.GroupVersionKind{Group: "missing.example.com", Version: "v1", Kind: "Nothing"}
	for name, tc := range map[string]struct {
		prepare         func(b *bench, m *v1beta1.Machine)
		kind            schema.GroupVersionKind
		reason, message string
	}{
		"no kind is permitted": {kind: remediator.SelfNode, reason: v1beta1.ReasonKindNotPermitted,
			message: "--remediation-kinds", prepare: func(b *bench,
				_ *v1beta1.Machine) {
				b.options.Remediators.Kinds = nil
			}},
		"no target cluster": {kind: remediator.SelfNode, reason: v1beta1.ReasonNoTargetCluster,
			message: "spec.remediation.templateRef", prepare: func(b *bench, _ *v1beta1.Machine) {
				b.options.Remediators, b.options.Nodes = nil, nil
			}},
		"the kind is not installed": {kind: missing, reason: v1beta1.ReasonKindNotInstalled,
			message: "Install the operator",
			prepare: func(b *bench, _ *v1beta1.Machine) {
				b.options.Remediators.Kinds = append(b.options.Remediators.Kinds, missing.GroupKind())
			}},
		"no template": {kind: remediator.SelfNode, reason: v1beta1.ReasonTemplateNotFound,
			message: "get SelfNodeRemediationTemplate ", prepare: func(b *bench, _ *v1beta1.Machine) {
				b.must(b.c.Delete(b.ctx(), b.template(remediator.SelfNode)))
			}},
		"a template without a spec": {kind: remediator.SelfNode, reason: v1beta1.ReasonTemplateInvalid,
			message: "spec.template.spec",
			prepare: func(b *bench, _ *v1beta1.Machine) {
				o := b.template(remediator.SelfNode)
				unstructured.RemoveNestedField(o.Object, "spec", "template")
				b.must(b.c.Update(b.ctx(), o))
			}},
		"no rights": {kind: remediator.SelfNode, reason: v1beta1.ReasonRemediationForbidden, message: "remediationKinds",
			prepare: func(b *bench, _ *v1beta1.Machine) {
				b.options.Remediators.Client = interceptor.NewClient(env.Client(b), interceptor.Funcs{
					List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
						return apierrors.NewForbidden(schema.GroupResource{Resource: "selfnoderemediations"}, "", nil)
					}})
			}},
		"another client's remediation": {kind: remediator.SelfNode, reason: v1beta1.ReasonRemediationNameTaken,
			message: "belongs to another client", prepare: func(b *bench, m *v1beta1.Machine) { b.foreign(m, nil) }},
		"a remediation of another installation": {kind: remediator.SelfNode, reason: v1beta1.ReasonRemediationNameTaken,
			message: "belongs to another client", prepare: func(b *bench, m *v1beta1.Machine) {
				b.foreign(m, map[string]string{v1beta1.RemediationAnnotation: `{"cluster":"elsewhere","namespace":"` +
					b.namespace + `","machine":"` + m.Name + `","nodeUID":"` + string(m.Status.NodeRef.UID) + `"}`})
			}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRemediatorBench(t)
			machines := b.machines(3)
			tc.prepare(b, machines[0])
			before := b.remediations()
			c := b.check(b.leave(tc.kind, 10*time.Minute, v1beta1.OnTimeoutReplace))
			b.restart()
			b.silence(machines[0])
			b.advance(5 * time.Minute)
			b.advance(time.Second)
			if b.options.Nodes != nil {
				b.wantReason(machines[0], v1beta1.ReasonExternalRemediation)
				b.wantCheck(c, v1beta1.ReasonRemediationAllowed, "", 3, 2, 0)
			}
			b.wantTemplate(c, tc.reason, tc.message)
			b.advance(time.Hour)
			b.wantNoWrites()
			after := b.remediations()
			if len(after) != len(before) || len(after) == 1 &&
				after[0].GetResourceVersion() != before[0].GetResourceVersion() {
				t.Errorf("remediations %v, before %v", after, before)
			}
		})
	}
}

// Rule: external-remediation-problems.
func TestTemplateIsUsedWhenItExists(t *testing.T) {
	b := newRemediatorBench(t)
	b.must(b.c.Delete(b.ctx(), b.template(remediator.SelfNode)))
	c := b.check(b.leave(remediator.SelfNode, time.Hour, ""))
	m := b.machines(3)[0]
	b.silence(m)
	b.advance(5 * time.Minute)
	if due := b.pass(); due > 10*time.Second {
		t.Errorf("the next pass is due after %s", due)
	}
	b.wantTemplate(c, v1beta1.ReasonTemplateNotFound, "")
	b.createTemplate(remediator.SelfNode)
	b.advance(time.Second)
	b.wantTemplate(c, v1beta1.ReasonTemplateReady, "")
	b.remediation()
	b.change(c, func(r *v1beta1.HealthCheckRemediation) { *r = v1beta1.HealthCheckRemediation{Type: "External"} })
	b.advance(time.Second)
	b.wantNoRemediation()
	is := &v1beta1.MachineHealthCheck{}
	b.must(b.c.Get(b.ctx(), client.ObjectKeyFromObject(c), is))
	if meta.FindStatusCondition(is.Status.Conditions, v1beta1.ConditionRemediationTemplateReady) != nil {
		t.Error("a check without a template has the condition of its template")
	}
}

// Each write to the target cluster may fail, with or without an effect. The same state results. The simulation also
// lets reads fail.
//
// Rule: one-remediation-per-machine.
func TestFailedRequestsLoseNoRemediation(t *testing.T) {
	for _, applied := range []bool{false, true} {
		for nth := 1; ; nth++ {
			b := newRemediatorBench(t)
			failed, count := errors.New("injected"), 0
			fail := func(do func() error) error {
				if count++; count != nth {
					return do()
				}
				if applied {
					_ = do()
				}
				return failed
			}
			inner := env.Client(t)
			b.options.Remediators.Client = interceptor.NewClient(inner, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					return fail(func() error { return c.Create(ctx, o, opts...) })
				},
				Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
					return fail(func() error { return c.Delete(ctx, o, opts...) })
				},
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
					opts ...client.PatchOption) error {
					return fail(func() error { return c.Patch(ctx, o, p, opts...) })
				},
			})
			b.restart()
			pass := func() {
				t.Helper()
				if _, err := b.health.Reconcile(b.ctx(), reconcile.Request{}); err != nil && !errors.Is(err, failed) {
					t.Fatal(err)
				}
				if len(b.remediations()) > 1 {
					t.Fatalf("write %d failed: there are %d remediations", nth, len(b.remediations()))
				}
			}
			b.check(b.leave(remediator.SelfNode, time.Minute, ""))
			m := b.machines(3)[0]
			b.silence(m)
			pass()
			b.clock.Step(5 * time.Minute)
			for range 4 {
				pass()
			}
			b.remediation()
			b.clock.Step(time.Minute)
			for range 3 {
				pass()
			}
			if _, found := b.remediation().GetAnnotations()[v1beta1.RemediationAnnotationTimedOut]; !found {
				t.Errorf("write %d failed: the operator was not told about the timeout", nth)
			}
			b.recover(m)
			for range 3 {
				pass()
			}
			b.wantNoRemediation()
			b.wantMarked()
			if count < nth {
				break
			}
		}
	}
}

// startRemediation makes a machine unhealthy and waits for its remediation.
func (b *bench) startRemediation(m *v1beta1.Machine) {
	b.Helper()
	b.silence(m)
	b.advance(5 * time.Minute)
	b.pass()
	b.remediation()
	b.pass()
}

func (b *bench) wantReason(m *v1beta1.Machine, reason string) {
	b.Helper()
	if mark := b.mark(m); mark == nil || mark.Reason != reason || mark.Status != metav1.ConditionTrue {
		b.Fatalf("the mark is %+v, want %s", mark, reason)
	}
}

func (b *bench) wantTemplate(c *v1beta1.MachineHealthCheck, reason, message string) {
	b.Helper()
	is := &v1beta1.MachineHealthCheck{}
	b.must(b.c.Get(b.ctx(), client.ObjectKeyFromObject(c), is))
	got := meta.FindStatusCondition(is.Status.Conditions, v1beta1.ConditionRemediationTemplateReady)
	if got == nil || got.Reason != reason || !strings.Contains(got.Message, message) ||
		(got.Status == metav1.ConditionTrue) != (reason == v1beta1.ReasonTemplateReady) {
		b.Errorf("the condition of the template is %+v, want %s", got, reason)
	}
}

func (b *bench) change(c *v1beta1.MachineHealthCheck, change func(*v1beta1.HealthCheckRemediation)) {
	b.Helper()
	is := &v1beta1.MachineHealthCheck{}
	b.must(b.c.Get(b.ctx(), client.ObjectKeyFromObject(c), is))
	change(&is.Spec.Remediation)
	b.must(b.c.Update(b.ctx(), is))
}

// foreign creates a remediation that does not belong to this installation.
func (b *bench) foreign(m *v1beta1.Machine, annotations map[string]string) {
	b.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(remediator.SelfNode)
	o.SetNamespace(b.namespace)
	o.SetName(m.Status.NodeRef.Name)
	o.SetLabels(map[string]string{v1beta1.RemediationLabelMachineUID: string(m.UID)})
	o.SetAnnotations(annotations)
	b.must(b.c.Create(b.ctx(), o))
}
