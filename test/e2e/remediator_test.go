//go:build e2e

package e2e

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/remediator"
)

const permittedKind = "SelfNodeRemediation.self-node-remediation.medik8s.io"

// An operator that follows the contract of Medik8s repairs one of two silent machines. It does not finish the
// repair of the other machine, which is replaced after the timeout. The manager has only the permissions of the
// chart.
//
// Rules: external-remediation-contract, external-remediation-ends, remediation-deleted-with-its-reason,
// one-remediation-per-machine.
func TestOperatorRepairsMachinesBeforeReplacement(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{
		SeparateTarget: true, ManagerArgs: defaultLease, RemediationKinds: []string{permittedKind},
		ExtraControllerManagerArgs: []string{"--node-monitor-grace-period=20s", "--node-monitor-period=1s"},
	})
	m.removeDelays()
	m.createFleet(5, nil)
	before := m.awaitRunning(5)
	repaired, stuck := before[0], before[1]
	m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"remediation":{"maxInFlight":2}}}`)
	operator := m.startOperator(map[string]func(){
		repaired.Status.NodeRef.Name: func() { m.injectFault(simcloud.FaultRecovers, repaired) },
	})

	permitted, refused := externalCheck(remediator.SelfNode), externalCheck(remediator.FenceAgents)
	if err := m.control.Create(context.Background(), refused); err == nil ||
		!strings.Contains(err.Error(), "--remediation-kinds") {
		t.Errorf("create a check with a kind that is not permitted: got %v, want an error that names the flag", err)
	}
	m.createHealthCheck(func(c *v1beta1.MachineHealthCheck) {
		c.Spec.Remediation = permitted.Spec.Remediation
	})
	m.injectFault(simcloud.FaultSilent, repaired, stuck)

	m.awaitGone(stuck)
	after := m.awaitOneReplaced(before, stuck)
	i := slices.IndexFunc(after, func(o v1beta1.Machine) bool { return o.UID == repaired.UID })
	m.wantSameNode(repaired, &after[i], false)
	eventually(t, "the remediations are deleted, and the operator has removed its taint", func() (bool, string) {
		left := operator.list()
		return len(left) == 0 && !hasTaint(m.node(&after[i]), remediator.Taint), describeNames(left)
	})
	conditions := m.machine(repaired.Name).Status.Conditions
	if meta.FindStatusCondition(conditions, v1beta1.ConditionRemediationRequested) != nil {
		t.Error("the repaired machine still has a mark")
	}
	first, last := operator.calls(stuck), operator.calls(repaired)
	if first.created != 1 || !first.stopped || first.machine != string(stuck.UID) {
		t.Errorf("remediation of the machine that was replaced: got %+v, want one that was told to stop", first)
	}
	if last.created != 1 || last.stopped || last.machine != string(repaired.UID) {
		t.Errorf("remediation of the machine that was repaired: got %+v, want one that was not told to stop", last)
	}
	if note := m.markEvent(stuck.UID).note; !strings.Contains(note, "exceeded its timeout") {
		t.Errorf("event of the last mark of machine %s: got %q, want a replacement after the timeout", stuck.Name, note)
	}
	m.wantInstances(t, 6, 5)
}

func externalCheck(kind schema.GroupVersionKind) *v1beta1.MachineHealthCheck {
	return &v1beta1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "refused"},
		Spec: v1beta1.MachineHealthCheckSpec{Remediation: v1beta1.HealthCheckRemediation{
			Type: v1beta1.RemediationExternal, Timeout: &metav1.Duration{Duration: 30 * time.Second},
			OnTimeout: v1beta1.OnTimeoutReplace,
			TemplateRef: &v1beta1.RemediationTemplateReference{APIVersion: kind.GroupVersion().String(),
				Kind:      kind.Kind + "Template",
				Namespace: corev1.NamespaceDefault, Name: remediator.TemplateName},
		}}}
}

// operator is a stand-in for an operator of Medik8s. It reports success only for the Nodes that it can repair.
type operator struct {
	m       *machinist
	repairs map[string]func()
	mu      sync.Mutex
	seen    map[string]*operatorCalls // by the name of the Node
}

// operatorCalls is what the operator has seen of the remediations of a Node.
type operatorCalls struct {
	uid     string
	created int
	stopped bool
	machine string
}

func (m *machinist) startOperator(repairs map[string]func()) *operator {
	m.t.Helper()
	o := &operator{m: m, repairs: repairs, seen: map[string]*operatorCalls{}}
	for _, d := range remediator.Definitions() {
		d.TypeMeta = metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(),
			Kind: "CustomResourceDefinition"}
		if err := install.Apply(context.Background(), m.Target.Config(), d); err != nil {
			m.t.Fatal(err)
		}
	}
	eventually(m.t, "the template is accepted", func() (bool, string) {
		err := m.target.Create(context.Background(), remediator.Template(remediator.SelfNode, corev1.NamespaceDefault))
		return err == nil, errorText(err)
	})
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				o.pass(ctx)
			}
		}
	})
	m.t.Cleanup(func() { stop(); done.Wait() })
	return o
}

func (o *operator) list() []unstructured.Unstructured {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(remediator.SelfNode.GroupVersion().WithKind(remediator.SelfNode.Kind + "List"))
	if err := o.m.target.List(context.Background(), list); err != nil {
		o.m.t.Errorf("list remediations: %v", err)
	}
	return list.Items
}

// pass processes each remediation once. Another client may change an object meanwhile. The next pass then repeats
// the request.
func (o *operator) pass(ctx context.Context) {
	for _, r := range o.list() {
		isNew := o.record(&r)
		if remediator.IsIdle(&r) {
			continue
		}
		result := metav1.ConditionUnknown
		if repair := o.repairs[remediator.NodeOf(&r)]; repair != nil {
			result = metav1.ConditionTrue
			if isNew {
				repair()
			}
		}
		if err := remediator.Process(ctx, o.m.target, &r, result); err != nil && !apierrors.IsConflict(err) &&
			!apierrors.IsNotFound(err) && ctx.Err() == nil {
			o.m.t.Errorf("process remediation %s: %v", r.GetName(), err)
		}
	}
}

// record reports whether the remediation is new.
func (o *operator) record(r *unstructured.Unstructured) (isNew bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.seen[remediator.NodeOf(r)]
	if c == nil {
		c = &operatorCalls{}
		o.seen[remediator.NodeOf(r)] = c
	}
	if isNew = c.uid != string(r.GetUID()); isNew {
		c.uid, c.machine = string(r.GetUID()), r.GetLabels()[v1beta1.RemediationLabelMachineUID]
		c.created++
	}
	c.stopped = c.stopped || remediator.IsToldToStop(r)
	return isNew
}

func (o *operator) calls(of v1beta1.Machine) operatorCalls {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.seen[of.Status.NodeRef.Name]; c != nil {
		return *c
	}
	return operatorCalls{}
}

func describeNames(objects []unstructured.Unstructured) string {
	var names []string
	for i := range objects {
		names = append(names, objects[i].GetName())
	}
	return "remediations " + strings.Join(names, ", ")
}

// remediationRules returns the rules of the manager in the target cluster, as the chart has rendered them for the
// permitted kinds.
func remediationRules(t *testing.T, s *stack.Stack) []rbacv1.PolicyRule {
	c, err := s.TargetClient()
	role := &rbacv1.ClusterRole{}
	if err == nil {
		err = c.Get(context.Background(), client.ObjectKey{Name: string("machinist-" + manifests.ManagerTarget)}, role)
	}
	if err != nil {
		t.Errorf("read the role of the manager: %v", err)
	}
	return slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return !slices.ContainsFunc(r.APIGroups, func(g string) bool { return strings.HasSuffix(permittedKind, "."+g) })
	})
}
