package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/remediator"
)

// remediationTimeout is the timeout of remediations. operationTime is how long the operator takes for one.
const (
	remediationTimeout = 4 * time.Minute
	operationTime      = 30 * time.Second
	operatorNamespace  = "medik8s"
	operatorActor      = "remediator"
)

// Remediation is the group of scenarios in which another operator remediates machines.
const Remediation Group = "remediation"

func remediationScenarios() []Scenario {
	return []Scenario{
		{Name: "remediation-by-operator", Group: Remediation, Controllers: Health | Remediators, Variants: 4,
			Base: fleet(6, "a"), Script: remediatedByOperator, MayDiffer: anyEnd},
		{Name: "remediation-changed", Group: Remediation, Controllers: Health | Remediators, Variants: 4,
			Base: fleet(6, "a"), Script: changedRemediation, MayDiffer: anyEnd},
		{Name: "remediation-template-late", Group: Remediation, Controllers: Health | Remediators, Variants: 2,
			Base: fleet(6, "a"), Script: lateTemplate, MayDiffer: anyEnd},
	}
}

// lateTemplate returns actions in which the template of the remediations is missing at first. In some runs, the kubelet
// reports again shortly before the template is created.
func lateTemplate(r *rand.Rand) []Action {
	actions := slices.DeleteFunc(beginRemediation(r), func(a Action) bool { return a.Name == createTemplates().Name })
	marked := func(w *World) bool {
		return slices.ContainsFunc(w.machines(), requested) || !w.anyHung()
	}
	if r.IntN(2) == 0 {
		return append(actions, revive(0).waitFor("a machine is marked", marked), createTemplates().after(upTo(r, 20*time.Second)))
	}
	return append(actions, createTemplates().waitFor("a machine is marked", marked), endRemediation(r))
}

func (w *World) anyHung() bool {
	return slices.ContainsFunc(w.cloud.instances, func(in *instance) bool { return in.hung })
}

// remediatedByOperator returns actions in which a Node becomes silent. The operator reboots its host, fails, or does
// not finish. In some runs, the kubelet reports again by itself, or the target cluster is unreachable for a while.
func remediatedByOperator(r *rand.Rand) []Action {
	actions := beginRemediation(r)
	switch r.IntN(4) {
	case 0:
		actions = append(actions, revive(0).after(healthTimeout+upTo(r, remediationTimeout)))
	case 1:
		actions = append(actions, outage(toTarget, true).after(healthTimeout+upTo(r, time.Minute)),
			endOutage(toTarget).after(upTo(r, 5*time.Minute)))
	}
	return append(actions, endRemediation(r))
}

// changedRemediation returns actions in which users change the fleet or the health check during a remediation.
func changedRemediation(r *rand.Rand) []Action {
	change := []Action{
		remediatedMachine("delete the machine", func(ctx context.Context, c client.Client, m *v1beta1.Machine) error {
			return c.Delete(ctx, m)
		}),
		remediatedMachine("exempt the machine", func(ctx context.Context, c client.Client, m *v1beta1.Machine) error {
			changed := m.DeepCopy()
			metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1beta1.AnnotationSkipRemediation, "")
			return c.Patch(ctx, changed, client.MergeFrom(m))
		}),
		changeCheck("delete the health check", func(ctx context.Context, c client.Client,
			h *v1beta1.MachineHealthCheck) error {
			return c.Delete(ctx, h)
		}),
		changeCheck("change the type", func(ctx context.Context, c client.Client, h *v1beta1.MachineHealthCheck) error {
			h.Spec.Remediation = v1beta1.HealthCheckRemediation{Type: v1beta1.RemediationReplace}
			return c.Update(ctx, h)
		}),
		changeCheck("change the template", func(ctx context.Context, c client.Client,
			h *v1beta1.MachineHealthCheck) error {
			h.Spec.Remediation.TemplateRef = templateOf(remediator.FenceAgents)
			return c.Update(ctx, h)
		}),
	}[r.IntN(5)]
	return append(beginRemediation(r), change.waitFor("there is a remediation or the machines are healthy",
		func(w *World) bool {
			return len(w.remediations()) > 0 || !w.anyHung()
		}), endRemediation(r))
}

func beginRemediation(r *rand.Rand) []Action {
	result := []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown}[r.IntN(3)]
	onTimeout := []v1beta1.RemediationTimeoutAction{"", v1beta1.OnTimeoutNone, v1beta1.OnTimeoutReplace,
		v1beta1.OnTimeoutReplace}[r.IntN(4)]
	check := checkOf(v1beta1.DefaultMaxUnhealthy, deployment)
	return []Action{stopUsers(), installOperator(result), createTemplates(), check, changeCheck("leave the machines to the operator",
		func(ctx context.Context, c client.Client, h *v1beta1.MachineHealthCheck) error {
			h.Spec.Remediation = v1beta1.HealthCheckRemediation{Type: v1beta1.RemediationExternal,
				TemplateRef: templateOf(remediator.SelfNode), OnTimeout: onTimeout,
				Timeout: &metav1.Duration{Duration: remediationTimeout}}
			return c.Update(ctx, h)
		}), silence(r.IntN(6))}
}

// endRemediation returns an action after which all machines work again, because a machine stays unhealthy after a
// failed remediation with onTimeout None.
func endRemediation(r *rand.Rand) Action {
	return revive(0).after(healthTimeout + remediationTimeout + upTo(r, 3*time.Minute))
}

func templateOf(kind schema.GroupVersionKind) *v1beta1.RemediationTemplateReference {
	return &v1beta1.RemediationTemplateReference{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind + "Template",
		Namespace: operatorNamespace, Name: remediator.TemplateName}
}

// installOperator returns an action that installs an operator. The result is that of its remediations. With Unknown,
// no remediation ends.
func installOperator(result metav1.ConditionStatus) Action {
	return Action{Name: "install an operator whose remediations have the result " + string(result),
		Do: func(ctx context.Context, w *World, _ client.Client) error {
			w.safety.operatorResult = result
			c := w.hand(w.target)
			for _, d := range remediator.Definitions() {
				if err := c.Create(ctx, d); err != nil {
					return err
				}
			}
			return nil
		}}
}

func createTemplates() Action {
	return Action{Name: "create the templates of remediations", Do: func(ctx context.Context, w *World,
		_ client.Client) error {
		for _, kind := range remediator.Kinds() {
			if err := w.hand(w.target).Create(ctx, remediator.Template(kind, operatorNamespace)); err != nil {
				return err
			}
		}
		return nil
	}}
}

// remediatedMachine returns an action on the machine of a remediation.
func remediatedMachine(name string, change func(context.Context, client.Client, *v1beta1.Machine) error) Action {
	return Action{Name: name, Do: func(ctx context.Context, w *World, c client.Client) error {
		for _, o := range w.remediations() {
			for _, m := range w.machines() {
				if string(m.UID) == o.GetLabels()[v1beta1.RemediationLabelMachineUID] {
					return client.IgnoreNotFound(change(ctx, c, m.DeepCopy()))
				}
			}
		}
		return nil
	}}
}

func changeCheck(name string, change func(context.Context, client.Client,
	*v1beta1.MachineHealthCheck) error) Action {
	return Action{Name: name, Do: func(ctx context.Context, w *World, c client.Client) error {
		for _, check := range w.healthChecks() {
			return change(ctx, c, check.DeepCopy())
		}
		return nil
	}}
}

// remediations returns all remediations in the target cluster.
func (w *World) remediations() (all []unstructured.Unstructured) {
	if w.safety.operatorResult == "" {
		return nil
	}
	for _, kind := range remediator.Kinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := w.target.Client(operatorActor).List(context.Background(), list); err != nil {
			w.oracle.broken(err)
		}
		all = append(all, list.Items...)
	}
	return all
}

// operate returns the possible steps of the operator.
func (w *World) operate() (out []choice) {
	if w.safety.operatorResult == "" || w.safety.targetUnreachable() {
		return nil
	}
	for _, o := range w.remediations() {
		result := metav1.ConditionUnknown
		if remediator.IsIdle(&o) {
			due := w.clock.Since(o.GetCreationTimestamp().Time) >= operationTime
			if !due || o.GetDeletionTimestamp() != nil || remediator.Status(&o) != metav1.ConditionUnknown ||
				w.safety.operatorResult == metav1.ConditionUnknown {
				continue
			}
			result = w.safety.operatorResult
		}
		out = append(out, choice{"operator processes " + o.GetName(), func() error {
			w.logf("the operator processes %s %s: %s", o.GetKind(), o.GetName(), result)
			w.disturbed = w.clock.at
			if err := remediator.Process(context.Background(), w.target.Client(operatorActor), &o, result); err != nil {
				return err
			}
			if in := w.kubeletOn(remediator.NodeOf(&o)); in != nil && result == metav1.ConditionTrue {
				in.hung = false
			}
			return nil
		}})
	}
	return out
}

func (w *World) remediationsLeft() (missing []string) {
	for _, o := range w.remediations() {
		missing = append(missing, fmt.Sprintf("%s %s is left", o.GetKind(), o.GetName()))
	}
	return missing
}

// healthOfNode returns the health of a Node by its UID, and whether it exists.
func (w *World) healthOfNode(ref *v1beta1.NodeRef) (h nodeHealth, exists bool) {
	if ref == nil {
		return h, false
	}
	node := w.node(ref.Name)
	h, known := w.safety.nodes[ref.UID]
	return h, known && node != nil && node.UID == ref.UID
}
