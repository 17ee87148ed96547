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
	// podsWanted is the number of pods of the workload: one for each machine of the fleet.
	podsWanted = 2
)

// drainScenario shows how a machine is deleted while a PodDisruptionBudget protects a pod on its node.
type drainScenario struct {
	*scenarioEnv
	machine v1beta1.Machine // the deleted machine
	pod     corev1.Pod      // the pod on the node of the machine
}

func (d *drainScenario) steps() []scenarioStep {
	return []scenarioStep{
		{fmt.Sprintf("Create a fleet of %d machines and wait until they are Ready nodes.", podsWanted), d.fleetRuns},
		{fmt.Sprintf("Create the Deployment %s with a pod on each node, and the PodDisruptionBudget %s, which requires all %d pods to be available.",
			workload, budget, podsWanted), d.deployPods},
		{"Delete one of the machines. Its node is cordoned, but its pod cannot be evicted, because the budget blocks the drain.", d.deleteMachine},
		{"Run kubectl describe to see what the machine waits for.", d.describe},
		{"A replacement joins before the drain has finished, so the fleet has its full size again. The old instance still runs its pod.", d.replaced},
		{"Lift the budget (minAvailable: 0). The pod is evicted, the drain finishes, and the machine, its node and its instance are deleted.",
			d.liftBudget},
		{"The pod runs again, on the replacement.", d.podMoved},
		{"Delete the workload and the fleet.", d.end},
	}
}

func (d *drainScenario) fleetRuns(ctx context.Context) error {
	return d.awaitFleet(ctx, func(s snapshot) bool { return s.isRunning(podsWanted, examples.SmallClass) })
}

func (d *drainScenario) deployPods(ctx context.Context) error {
	for _, o := range []client.Object{workloadDeployment(), workloadBudget()} {
		if err := d.target.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	if err := d.poll(ctx, d.podsUnready); err != nil {
		return err
	}
	// A PodDisruptionBudget allows evictions only after the disruption controller has counted the pods.
	return d.poll(ctx, func(ctx context.Context) error {
		pdb := &policyv1.PodDisruptionBudget{}
		if err := d.target.Get(ctx, client.ObjectKey{Namespace: namespace, Name: budget}, pdb); err != nil {
			return err
		}
		if s := pdb.Status; s.ObservedGeneration < pdb.Generation || s.CurrentHealthy < podsWanted ||
			s.ExpectedPods != podsWanted {
			return fmt.Errorf("budget %s has counted %d healthy pods of %d", budget, s.CurrentHealthy, s.ExpectedPods)
		}
		return nil
	})
}

func (d *drainScenario) podsUnready(ctx context.Context) error {
	w := &appsv1.Deployment{}
	if err := d.target.Get(ctx, client.ObjectKey{Namespace: namespace, Name: workload}, w); err != nil {
		return err
	}
	if w.Status.ReadyReplicas != podsWanted || w.Status.Replicas != podsWanted {
		return fmt.Errorf("deployment %s has %d pods, %d of them ready", workload, w.Status.Replicas, w.Status.ReadyReplicas)
	}
	return nil
}

func (d *drainScenario) deleteMachine(ctx context.Context) error {
	now, err := d.fleet.observe(ctx)
	if err != nil {
		return err
	}
	if len(now.machines) == 0 || now.machines[0].Status.NodeRef == nil {
		return fmt.Errorf("the fleet has no machine with a node:\n%s", now.fullTable())
	}
	d.machine = now.machines[0]
	pods := &corev1.PodList{}
	err = d.target.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels(workloadLabels()),
		client.MatchingFields{"spec.nodeName": d.machine.Status.NodeRef.Name})
	if err != nil {
		return fmt.Errorf("list the pods on the machine: %w", err)
	}
	if len(pods.Items) != 1 {
		return fmt.Errorf("node %s has %d pods of the deployment %s, want one", d.machine.Status.NodeRef.Name,
			len(pods.Items), workload)
	}
	d.pod = pods.Items[0]
	if err := d.fleet.Delete(ctx, d.machine.DeepCopy()); err != nil {
		return fmt.Errorf("delete machine %s: %w", d.machine.Name, err)
	}
	d.screen.Printf("   Deleted machine %s. Pod %s runs on its node.", d.machine.Name, d.pod.Name)
	if err := d.awaitFleet(ctx, d.isBlocked); err != nil {
		return err
	}
	now, err = d.fleet.observe(ctx)
	if err != nil {
		return err
	}
	drained := meta.FindStatusCondition(d.currentMachine(now).Status.Conditions, v1beta1.ConditionDrained)
	d.screen.Printf("   %s: %s", drained.Reason, drained.Message)
	node := &corev1.Node{}
	if err := d.target.Get(ctx, client.ObjectKey{Name: d.machine.Status.NodeRef.Name}, node); err != nil {
		return fmt.Errorf("read the machine's node: %w", err)
	}
	if !node.Spec.Unschedulable {
		return fmt.Errorf("node %s is being drained but not cordoned", node.Name)
	}
	return nil
}

// currentMachine returns the current state of the machine that the scenario deletes. If the machine no longer exists,
// the result is an empty Machine.
func (d *drainScenario) currentMachine(s snapshot) *v1beta1.Machine {
	for i := range s.machines {
		if s.machines[i].UID == d.machine.UID {
			return &s.machines[i]
		}
	}
	return &v1beta1.Machine{}
}

// isBlocked reports whether the machine's conditions name the pod and the budget that block the drain.
func (d *drainScenario) isBlocked(s snapshot) bool {
	conditions := d.currentMachine(s).Status.Conditions
	drained, deleting := meta.FindStatusCondition(conditions,
		v1beta1.ConditionDrained), meta.FindStatusCondition(conditions, v1beta1.ConditionDeleting)
	return drained != nil && drained.Status == metav1.ConditionFalse &&
		drained.Reason == v1beta1.ReasonBlockedByDisruptionBudget &&
		d.named(drained.Message) && deleting != nil && deleting.Reason == v1beta1.ReasonDraining && d.named(deleting.Message)
}

func (d *drainScenario) named(text string) bool {
	return strings.Contains(text, d.pod.Name) && strings.Contains(text, budget)
}

func (d *drainScenario) describe(ctx context.Context) error {
	conditions, err := d.showKubectl(ctx, conditionsPart, "describe", "machine", d.machine.Name)
	if err != nil {
		return err
	}
	if !d.named(conditions) || !strings.Contains(conditions, v1beta1.ReasonBlockedByDisruptionBudget) {
		return fmt.Errorf("the conditions do not name all of pod %s, budget %s and reason %s", d.pod.Name, budget,
			v1beta1.ReasonBlockedByDisruptionBudget)
	}
	return nil
}

func (d *drainScenario) replaced(ctx context.Context) error {
	err := d.awaitFleet(ctx, func(s snapshot) bool {
		running := 0
		for i := range s.machines {
			if s.machines[i].Status.Phase == v1beta1.MachineRunning && s.machines[i].DeletionTimestamp.IsZero() {
				running++
			}
		}
		return running == podsWanted && d.isBlocked(s)
	})
	if err != nil {
		return err
	}
	state, err := d.instanceState(ctx)
	if err != nil {
		return err
	}
	if state != simcloud.StateRunning {
		return fmt.Errorf("the instance of machine %s is %s while the budget blocks its drain", d.machine.Name, state)
	}
	pod := &corev1.Pod{}
	if err := d.target.Get(ctx, client.ObjectKeyFromObject(&d.pod), pod); err != nil {
		return fmt.Errorf("read the pod that the budget protects: %w", err)
	}
	if pod.UID != d.pod.UID || !pod.DeletionTimestamp.IsZero() {
		return fmt.Errorf("pod %s is being deleted although the budget protects it", d.pod.Name)
	}
	return nil
}

func (d *drainScenario) instanceState(ctx context.Context) (simcloud.InstanceState, error) {
	dump, err := d.cloud.Dump(ctx)
	if err != nil {
		return "", fmt.Errorf("list the instances of the cloud: %w", err)
	}
	for _, r := range dump.Records {
		if r.ProviderID == d.machine.Spec.ProviderID {
			return r.State, nil
		}
	}
	return "", fmt.Errorf("the cloud has no instance %s", d.machine.Spec.ProviderID)
}

func (d *drainScenario) liftBudget(ctx context.Context) error {
	pdb := workloadBudget()
	lift := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"minAvailable":0}}`))
	if err := d.target.Patch(ctx, pdb, lift); err != nil {
		return fmt.Errorf("lift the budget: %w", err)
	}
	if err := d.awaitFleet(ctx, func(s snapshot) bool { return d.currentMachine(s).UID == "" }); err != nil {
		return err
	}
	// A machine that no longer exists must not leave an instance or a node.
	state, err := d.instanceState(ctx)
	if err != nil {
		return err
	}
	if state != simcloud.StateTerminated {
		return fmt.Errorf("machine %s no longer exists, but its instance is %s", d.machine.Name, state)
	}
	switch err := d.target.Get(ctx, client.ObjectKey{Name: d.machine.Status.NodeRef.Name}, &corev1.Node{}); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get the node of the machine: %w", err)
	}
	return fmt.Errorf("machine %s no longer exists, but its node does", d.machine.Name)
}

func (d *drainScenario) podMoved(ctx context.Context) error {
	isRunning := func(s snapshot) bool { return s.isRunning(podsWanted, examples.SmallClass) }
	if err := d.awaitFleet(ctx, isRunning); err != nil {
		return err
	}
	return d.poll(ctx, d.podsUnready)
}

func (d *drainScenario) end(ctx context.Context) error {
	background := client.PropagationPolicy(metav1.DeletePropagationBackground)
	for _, o := range []client.Object{workloadDeployment(), workloadBudget()} {
		if err := d.target.Delete(ctx, o, background); err != nil {
			return fmt.Errorf("delete %T %s: %w", o, o.GetName(), err)
		}
	}
	return d.deleteFleet(ctx)
}

func workloadLabels() map[string]string { return map[string]string{"app": workload} }

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
