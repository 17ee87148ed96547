package orphans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/nodemark"
	"machinist.dev/machinist/pkg/provider"
)

// If the finalizer of a Machine is removed by hand, its Node remains without an instance. The mark on each Node
// (v1beta1.NodeAnnotationInstance) names the instance, the installation, the provider and the class.

type lostNode struct {
	node    *corev1.Node
	mark    nodemark.Mark
	machine types.NamespacedName
	scope   *scope
}

// deleteLostNodes deletes at most MaxDeletes Nodes that two passes in a row found without a Machine and an instance.
func (c *Collector) deleteLostNodes(ctx context.Context, known *snapshot, state *State, listed []*scope,
	found map[string]*scope) error {
	before := c.state.lostNodes
	c.state.lostNodes = nil
	if c.Target == nil || !c.stable() || c.Rules.ReportOnly {
		return nil
	}
	nodes, err := index.ListShared[corev1.Node](ctx, c.Target.Nodes, &corev1.NodeList{})
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	lost := c.lostNodes(nodes, known, state, listed, found)
	c.state.lostNodes = map[types.UID]bool{}
	var errs []error
	left := c.Rules.MaxDeletes
	for i := range lost {
		uid := lost[i].node.UID
		c.state.lostNodes[uid] = true
		if before[uid] && left > 0 {
			left--
			errs = append(errs, c.deleteLostNode(ctx, &lost[i]))
		}
	}
	return errors.Join(errs...)
}

// lostNodes returns the Nodes that Machinist has marked as belonging to an instance, but whose Machine and instance no
// longer exist. Ready Nodes and Nodes of unlisted classes are skipped.
func (c *Collector) lostNodes(nodes []*corev1.Node, known *snapshot, state *State, listed []*scope,
	found map[string]*scope) (lost []lostNode) {
	machines, recorded, names := map[types.NamespacedName]bool{}, map[string]bool{}, map[string]bool{}
	for _, m := range known.machines {
		machines[client.ObjectKeyFromObject(m)] = true
		recorded[m.Spec.ProviderID], recorded[m.NodeProviderID()] = true, true
		names[index.NodeName(m)] = true
	}
	instances := map[string]bool{}
	for i := range state.Instances {
		instances[state.Instances[i].MachineKey] = true
	}
	for _, node := range nodes {
		mark, marked := nodemark.Parse(node.Annotations[v1beta1.NodeAnnotationInstance])
		if !marked || mark.ClusterID != c.Rules.ClusterID || mark.Provider != c.Cloud.Name() || isReady(node) {
			continue
		}
		key := types.NamespacedName{Namespace: node.Annotations[v1beta1.NodeAnnotationClusterNamespace],
			Name: node.Annotations[v1beta1.NodeAnnotationMachine]}
		switch {
		case key.Namespace == "" || key.Name == "" || !c.Rules.Shard.Owns(key.Namespace),
			c.Rules.Namespace != "" && key.Namespace != c.Rules.Namespace,
			machines[key], recorded[mark.ProviderID], recorded[node.Spec.ProviderID], names[node.Name],
			found[mark.ProviderID] != nil, found[node.Spec.ProviderID] != nil, instances[key.String()]:
			continue
		}
		at := slices.IndexFunc(listed, func(s *scope) bool {
			return listedBy([]*scope{s}, key.Namespace+"/"+mark.Class)
		})
		if at >= 0 && !c.lacksRunningInstance(listed[at], known, found) {
			lost = append(lost, lostNode{node, mark, key, listed[at]})
		}
	}
	slices.SortFunc(lost, func(a, b lostNode) int { return cmp.Compare(a.node.Name, b.node.Name) })
	return lost
}

// lacksRunningInstance reports whether a list lacks an instance whose kubelet still reports. Such a list proves
// nothing, because the credentials may belong to another account now.
func (c *Collector) lacksRunningInstance(s *scope, known *snapshot, found map[string]*scope) bool {
	for _, m := range known.machines {
		if m.Spec.ProviderID == "" || !nodeReports(m) || found[m.Spec.ProviderID] != nil {
			continue
		}
		if in, ok := known.inputs[c.keyOf(m)]; ok && listedBy([]*scope{s}, nameOf(in.source)) {
			return true
		}
	}
	return false
}

// deleteLostNode deletes a Node if live reads find neither its Machine nor its instance.
func (c *Collector) deleteLostNode(ctx context.Context, lost *lostNode) error {
	switch err := c.LiveClient.Get(ctx, lost.machine, &v1beta1.Machine{}); {
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read Machine %s: %w", lost.machine, err)
	}
	_, err := c.Cloud.Get(ctx, provider.GetRequest{
		Machine: provider.Machine{Namespace: lost.machine.Namespace, Name: lost.machine.Name},
		Class:   lost.scope.class, ClusterID: c.Rules.ClusterID, ProviderID: lost.mark.ProviderID,
		Scope: lost.mark.Scope,
	})
	switch {
	case err == nil:
		c.log(ctx).Info("Keeping the Node of a lost Machine, because the instance exists", "node", lost.node.Name,
			"providerID", lost.mark.ProviderID)
		return nil
	case !provider.IsNotFound(err):
		return fmt.Errorf("look up instance %s: %w", lost.mark.ProviderID, err)
	}
	return c.deleteNode(ctx, lost.node)
}
