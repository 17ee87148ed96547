package demo

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/simcloud"
)

const (
	workload = "web"
	budget   = "web-budget"
	// podsWanted is one for each machine of the fleet.
	podsWanted = 2
)

// drainStory tells of a machine that must go while a PodDisruptionBudget needs the pod on it.
type drainStory struct {
	*stage
	machine v1beta1.Machine // the one that must go
	pod     corev1.Pod      // on its node
}

func (d *drainStory) acts() []act {
	return []act{
		{fmt.Sprintf("A fleet of %d machines becomes Ready nodes.", podsWanted), d.fleetRuns},
		{fmt.Sprintf("Deployment %s runs a pod on each node, and PodDisruptionBudget %s wants all %d of them available.",
			workload, budget, podsWanted), d.deployPods},
		{"One of the machines is deleted. Its node is cordoned, but its pod cannot be evicted: the budget holds the drain up.", d.deleteMachine},
		{"kubectl describe tells a user what the machine waits for.", d.describe},
		{"The fleet has its size again before the drain is over: a replacement joins, while the old instance still runs its pod.", d.replaced},
		{"The budget is lifted (minAvailable: 0). The pod is evicted, the drain finishes, and machine, node and instance go.",
			d.liftBudget},
		{"The pod runs again, on the replacement.", d.podMoved},
		{"The workload and the fleet are deleted.", d.end},
	}
}

func (d *drainStory) fleetRuns(ctx context.Context) error {
	return d.machines(ctx, func(s snapshot) bool { return s.running(podsWanted, examples.SmallClass) })
}

func (d *drainStory) deployPods(ctx context.Context) error {
	for _, o := range []client.Object{workloadDeployment(), workloadBudget()} {
		if err := d.target.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	if err := d.until(ctx, d.podsUnready); err != nil {
		return err
	}
	// Until the disruption controller has counted them, the budget allows nothing, whatever it says.
	return d.until(ctx, func(ctx context.Context) error {
		pdb := &policyv1.PodDisruptionBudget{}
		if err := d.target.Get(ctx, client.ObjectKey{Namespace: namespace, Name: budget}, pdb); err != nil {
			return err
		}
		if s := pdb.Status; s.ObservedGeneration < pdb.Generation || s.CurrentHealthy < podsWanted ||
			s.ExpectedPods != podsWanted {
			return fmt.Errorf("budget %s knows of %d healthy pods of %d", budget, s.CurrentHealthy, s.ExpectedPods)
		}
		return nil
	})
}

// podsUnready says what the workload lacks.
func (d *drainStory) podsUnready(ctx context.Context) error {
	w := &appsv1.Deployment{}
	if err := d.target.Get(ctx, client.ObjectKey{Namespace: namespace, Name: workload}, w); err != nil {
		return err
	}
	if w.Status.ReadyReplicas != podsWanted || w.Status.Replicas != podsWanted {
		return fmt.Errorf("deployment %s has %d pods, %d of them ready", workload, w.Status.Replicas, w.Status.ReadyReplicas)
	}
	return nil
}

func (d *drainStory) deleteMachine(ctx context.Context) error {
	now, err := d.fleet.observe(ctx)
	if err != nil {
		return err
	}
	if len(now.machines) == 0 || now.machines[0].Status.NodeRef == nil {
		return fmt.Errorf("there is no machine with a node:\n%s", now.whole())
	}
	d.machine = now.machines[0]
	pods := &corev1.PodList{}
	err = d.target.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels(workloadLabels()),
		client.MatchingFields{"spec.nodeName": d.machine.Status.NodeRef.Name})
	if err != nil {
		return fmt.Errorf("list the pods on the machine: %w", err)
	}
	if len(pods.Items) != 1 {
		return fmt.Errorf("node %s has %d pods of deployment %s, want one", d.machine.Status.NodeRef.Name,
			len(pods.Items), workload)
	}
	d.pod = pods.Items[0]
	if err := d.fleet.Delete(ctx, d.machine.DeepCopy()); err != nil {
		return fmt.Errorf("delete machine %s: %w", d.machine.Name, err)
	}
	d.screen.Printf("   machine %s is deleted; pod %s runs on its node.", d.machine.Name, d.pod.Name)
	if err := d.machines(ctx, d.blocked); err != nil {
		return err
	}
	now, err = d.fleet.observe(ctx)
	if err != nil {
		return err
	}
	drained := meta.FindStatusCondition(d.found(now).Status.Conditions, v1beta1.ConditionDrained)
	d.screen.Printf("   %s: %s", drained.Reason, drained.Message)
	node := &corev1.Node{}
	if err := d.target.Get(ctx, client.ObjectKey{Name: d.machine.Status.NodeRef.Name}, node); err != nil {
		return fmt.Errorf("read the machine's node: %w", err)
	}
	if !node.Spec.Unschedulable {
		return fmt.Errorf("node %s is being drained and not cordoned", node.Name)
	}
	return nil
}

// found returns the machine of the story as it is now, an empty one if it is gone.
func (d *drainStory) found(s snapshot) *v1beta1.Machine {
	for i := range s.machines {
		if s.machines[i].UID == d.machine.UID {
			return &s.machines[i]
		}
	}
	return &v1beta1.Machine{}
}

// blocked reports whether the machine's conditions say that pod and budget are in the way.
func (d *drainStory) blocked(s snapshot) bool {
	conditions := d.found(s).Status.Conditions
	drained, deleting := meta.FindStatusCondition(conditions,
		v1beta1.ConditionDrained), meta.FindStatusCondition(conditions, v1beta1.ConditionDeleting)
	return drained != nil && drained.Status == metav1.ConditionFalse &&
		drained.Reason == v1beta1.ReasonBlockedByDisruptionBudget &&
		d.named(drained.Message) && deleting != nil && deleting.Reason == v1beta1.ReasonDraining && d.named(deleting.Message)
}

// named reports whether a text names the pod and the budget.
func (d *drainStory) named(text string) bool {
	return strings.Contains(text, d.pod.Name) && strings.Contains(text, budget)
}

func (d *drainStory) describe(ctx context.Context) error {
	conditions, err := d.check(ctx, conditionsPart, "describe", "machine", d.machine.Name)
	if err != nil {
		return err
	}
	if !d.named(conditions) || !strings.Contains(conditions, v1beta1.ReasonBlockedByDisruptionBudget) {
		return fmt.Errorf("it names pod %s, budget %s and reason %s not all", d.pod.Name, budget,
			v1beta1.ReasonBlockedByDisruptionBudget)
	}
	return nil
}

func (d *drainStory) replaced(ctx context.Context) error {
	err := d.machines(ctx, func(s snapshot) bool {
		running := 0
		for i := range s.machines {
			if s.machines[i].Status.Phase == v1beta1.MachineRunning && s.machines[i].DeletionTimestamp.IsZero() {
				running++
			}
		}
		return running == podsWanted && d.blocked(s)
	})
	if err != nil {
		return err
	}
	state, err := d.instanceState(ctx)
	if err != nil {
		return err
	}
	if state != simcloud.StateRunning {
		return fmt.Errorf("the instance of machine %s is %s while its drain is held up", d.machine.Name, state)
	}
	pod := &corev1.Pod{}
	if err := d.target.Get(ctx, client.ObjectKeyFromObject(&d.pod), pod); err != nil {
		return fmt.Errorf("read the pod that the budget protects: %w", err)
	}
	if pod.UID != d.pod.UID || !pod.DeletionTimestamp.IsZero() {
		return fmt.Errorf("pod %s is going although the budget protects it", d.pod.Name)
	}
	return nil
}

// instanceState asks the cloud for the machine's instance.
func (d *drainStory) instanceState(ctx context.Context) (simcloud.InstanceState, error) {
	dump, err := d.cloud.Dump(ctx)
	if err != nil {
		return "", fmt.Errorf("ask the cloud for its instances: %w", err)
	}
	for _, r := range dump.Records {
		if r.ProviderID == d.machine.Spec.ProviderID {
			return r.State, nil
		}
	}
	return "", fmt.Errorf("the cloud knows no instance %s", d.machine.Spec.ProviderID)
}

func (d *drainStory) liftBudget(ctx context.Context) error {
	pdb := workloadBudget()
	lift := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"minAvailable":0}}`))
	if err := d.target.Patch(ctx, pdb, lift); err != nil {
		return fmt.Errorf("lift the budget: %w", err)
	}
	if err := d.machines(ctx, func(s snapshot) bool { return d.found(s).UID == "" }); err != nil {
		return err
	}
	// The machine is the last to go.
	state, err := d.instanceState(ctx)
	if err != nil {
		return err
	}
	if state != simcloud.StateTerminated {
		return fmt.Errorf("machine %s is gone and its instance is %s", d.machine.Name, state)
	}
	switch err := d.target.Get(ctx, client.ObjectKey{Name: d.machine.Status.NodeRef.Name}, &corev1.Node{}); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("look for the node of the machine: %w", err)
	}
	return fmt.Errorf("machine %s is gone and its node is not", d.machine.Name)
}

func (d *drainStory) podMoved(ctx context.Context) error {
	if err := d.machines(ctx, func(s snapshot) bool { return s.running(podsWanted, examples.SmallClass) }); err != nil {
		return err
	}
	return d.until(ctx, d.podsUnready)
}

func (d *drainStory) end(ctx context.Context) error {
	background := client.PropagationPolicy(metav1.DeletePropagationBackground)
	for _, o := range []client.Object{workloadDeployment(), workloadBudget()} {
		if err := d.target.Delete(ctx, o, background); err != nil {
			return fmt.Errorf("delete %T %s: %w", o, o.GetName(), err)
		}
	}
	return d.clear(ctx)
}

func workloadLabels() map[string]string { return map[string]string{"app": workload} }

// workloadDeployment has pods that do not share a node.
func workloadDeployment() *appsv1.Deployment {
	selector := &metav1.LabelSelector{MatchLabels: workloadLabels()}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: workload},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](podsWanted),
			Selector: selector,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: workloadLabels()},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: workload, Image: "example.com/web:1"}},
					Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
						RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: selector,
							TopologyKey: corev1.LabelHostname}},
					}},
				},
			},
		},
	}
}

func workloadBudget() *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: budget},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(podsWanted)),
			Selector:     &metav1.LabelSelector{MatchLabels: workloadLabels()},
		},
	}
}
