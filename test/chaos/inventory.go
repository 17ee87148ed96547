package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

type inventory struct {
	deployments []v1beta1.MachineDeployment
	sets        []v1beta1.MachineSet
	machines    []v1beta1.Machine
	nodes       []corev1.Node
	instances   []simcloud.Record
	tokens      []corev1.Secret
}

func (e *experiment) takeInventory(ctx context.Context) (*inventory, error) {
	var deployments v1beta1.MachineDeploymentList
	var sets v1beta1.MachineSetList
	var machines v1beta1.MachineList
	var nodes corev1.NodeList
	var tokens corev1.SecretList
	for _, list := range []client.ObjectList{&deployments, &sets, &machines} {
		if err := e.control.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
	}
	if err := e.target.List(ctx, &nodes); err != nil {
		return nil, err
	}
	if err := e.target.List(ctx, &tokens, client.InNamespace("kube-system"),
		client.MatchingFields{"type": "bootstrap.kubernetes.io/token"}); err != nil {
		return nil, err
	}
	dump, err := e.cloud.Dump(ctx)
	if err != nil {
		return nil, err
	}
	return &inventory{deployments.Items, sets.Items, machines.Items, nodes.Items,
		slices.DeleteFunc(dump.Records, func(r simcloud.Record) bool {
			return r.State == simcloud.StateTerminated
		}), tokens.Items}, nil
}

func (e *experiment) fleetProblems(ctx context.Context) []string {
	all, err := e.takeInventory(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	return all.problems()
}

func (all *inventory) problems() (problems []string) {
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	wanted := 0
	for i := range all.deployments {
		d := &all.deployments[i]
		n, s := d.ReplicasOrDefault(), d.Status
		wanted += int(n)
		if !d.DeletionTimestamp.IsZero() || s.ObservedGeneration != d.Generation || s.Replicas != n ||
			s.UpdatedReplicas != n || s.UpToDateReplicas != n || s.AvailableReplicas != n {
			problem("deployment %s wants %d replicas, has %d: %d updated, %d up to date, %d available, observed generation %d of %d",
				d.Name, n, s.Replicas, s.UpdatedReplicas, s.UpToDateReplicas, s.AvailableReplicas, s.ObservedGeneration,
				d.Generation)
		}
	}
	if len(all.machines) != wanted {
		problem("got %d machines, want %d", len(all.machines), wanted)
	}
	instances := map[types.UID]*simcloud.Record{}
	for i := range all.instances {
		r := &all.instances[i]
		uid := types.UID(r.Tags[provider.TagMachineUID])
		if instances[uid] != nil {
			problem("instances %s and %s belong to one machine", instances[uid].ID, r.ID)
		}
		instances[uid] = r
	}
	for i := range all.machines {
		m := &all.machines[i]
		r := instances[m.UID]
		delete(instances, m.UID)
		switch {
		case m.Status.Phase != v1beta1.MachineRunning || !m.DeletionTimestamp.IsZero():
			problem("machine %s is %s, deleted: %t %s", m.Name, m.Status.Phase, !m.DeletionTimestamp.IsZero(), conditions(m))
		case r == nil || r.ProviderID != m.Spec.ProviderID:
			problem("machine %s has no instance %s", m.Name, m.Spec.ProviderID)
		case !slices.ContainsFunc(all.nodes, func(n corev1.Node) bool { return n.Spec.ProviderID == r.ProviderID }):
			problem("machine %s has no node", m.Name)
		}
	}
	for uid, r := range instances {
		problem("instance %s has no machine; its tags name %s (%s)", r.ID, r.Tags[provider.TagMachine], uid)
	}
	if len(all.nodes) != wanted {
		problem("got %d nodes, want %d", len(all.nodes), wanted)
	}
	if len(all.tokens) > 0 {
		problem("%d bootstrap tokens are left", len(all.tokens))
	}
	return problems
}

func conditions(m *v1beta1.Machine) string {
	var out []string
	for _, c := range m.Status.Conditions {
		if c.Status != "True" {
			out = append(out, fmt.Sprintf("%s=%s(%s: %s)", c.Type, c.Status, c.Reason, c.Message))
		}
	}
	return strings.Join(out, " ")
}

func (e *experiment) leftovers(ctx context.Context) []string {
	all, err := e.takeInventory(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	return all.list()
}

func (all *inventory) list() (problems []string) {
	for _, d := range all.deployments {
		problems = append(problems, "deployment "+d.Name)
	}
	for _, s := range all.sets {
		problems = append(problems, "set "+s.Name)
	}
	for i := range all.machines {
		problems = append(problems, "machine "+all.machines[i].Name+" "+conditions(&all.machines[i]))
	}
	for _, r := range all.instances {
		problems = append(problems, fmt.Sprintf("instance %s of machine %s, %s", r.ID, r.Tags[provider.TagMachine], r.State))
	}
	for _, n := range all.nodes {
		problems = append(problems, "node "+n.Name)
	}
	for _, s := range all.tokens {
		problems = append(problems, "token "+s.Name)
	}
	return problems
}
