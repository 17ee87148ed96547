package orphans

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/drain"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/nodemark"
	"machinist.dev/machinist/pkg/provider"
)

// Target is the target cluster.
type Target struct {
	// Nodes reads Nodes from a cache with the index NodeByProviderID.
	Nodes client.Reader
	// LiveClient is the client for reads and writes at the API server of the cluster, without a cache.
	LiveClient client.Client
	// Drainer drains Nodes.
	Drainer Drainer
	// Epoch returns a number that changes with each outage of the cluster.
	Epoch func() uint64
}

// Drainer drains Nodes in the background.
type Drainer interface {
	CheckAndDrain(context.Context, drain.Request) drain.Outcome
	VolumesDetached(context.Context, drain.VolumesRequest) drain.Outcome
	Forget(machine types.NamespacedName)
}

// nodesOf returns the cached Nodes with the provider ID of the instance. It also returns the Node with the node name of
// the instance, if this Node has no provider ID or has a mark that names the instance.
func (c *Collector) nodesOf(ctx context.Context, in *provider.Instance) ([]*corev1.Node, error) {
	if c.Target == nil {
		return nil, nil
	}
	nodes, err := index.ListShared[corev1.Node](ctx, c.Target.Nodes, &corev1.NodeList{},
		client.MatchingFields{index.NodeByProviderID: in.ProviderID})
	if err != nil {
		return nil, fmt.Errorf("find the Node with the provider ID %s: %w", in.ProviderID, err)
	}
	if in.NodeName == "" || slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.Name == in.NodeName }) {
		return nodes, nil
	}
	named := &corev1.Node{}
	switch err := c.Target.Nodes.Get(ctx, client.ObjectKey{Name: in.NodeName}, named); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, fmt.Errorf("read Node %s: %w", in.NodeName, err)
	case named.Spec.ProviderID == "" || markNames(named, in):
		nodes = append(slices.Clone(nodes), named)
	}
	return nodes, nil
}

// liveNodesOf reads the Nodes of an instance from the API server. liveNodesOf reads the Nodes of the instance in the
// cache, and the Node with the name of the instance.
func (c *Collector) liveNodesOf(ctx context.Context, in *provider.Instance) ([]*corev1.Node, error) {
	cached, err := c.nodesOf(ctx, in)
	if err != nil || c.Target == nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, node := range cached {
		names[node.Name] = true
	}
	if in.NodeName != "" {
		names[in.NodeName] = true
	}
	var nodes []*corev1.Node
	for _, name := range slices.Sorted(maps.Keys(names)) {
		node := &corev1.Node{}
		switch err := c.Target.LiveClient.Get(ctx, client.ObjectKey{Name: name}, node); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("read Node %s: %w", name, err)
		case node.Spec.ProviderID == in.ProviderID, name == in.NodeName && (node.Spec.ProviderID == "" || markNames(node, in)):
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}

// markNames reports whether the mark of a Node names the instance, whatever its own provider ID is.
func markNames(node *corev1.Node, in *provider.Instance) bool {
	mark, marked := nodemark.Parse(node.Annotations[v1beta1.NodeAnnotationInstance])
	return marked && mark.ClusterID == in.ClusterID && mark.ProviderID == in.ProviderID
}

// instanceOf returns the provider ID of the Node's instance. The mark contains it. If the Node has no mark, instanceOf
// returns spec.providerID.
func instanceOf(node *corev1.Node) string {
	if mark, marked := nodemark.Parse(node.Annotations[v1beta1.NodeAnnotationInstance]); marked {
		return mark.ProviderID
	}
	return node.Spec.ProviderID
}

func isReady(node *corev1.Node) bool { return readiness(node).Status == corev1.ConditionTrue }

func readiness(node *corev1.Node) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// nodeAllowsRemoval reports whether an orphan may be removed in view of its Nodes. If a Node is Ready, the orphan is
// not removed until an administrator confirms the removal. After the confirmation, the Node is drained first.
func (c *Collector) nodeAllowsRemoval(ctx context.Context, in *provider.Instance, observation *Observation,
	confirmed bool) (bool, error) {
	nodes, err := c.liveNodesOf(ctx, in)
	if err != nil {
		return false, err
	}
	for _, node := range nodes {
		ready, draining := isReady(node), observation.Drain.UID == node.UID
		switch {
		case !ready && !draining:
		case !confirmed:
			c.log(ctx).Info("Not removing an orphan: its Node is Ready", "providerID", in.ProviderID,
				"node", node.Name)
			return false, nil
		default:
			if empty, err := c.drain(ctx, in, node, observation); err != nil || !empty {
				return false, err
			}
		}
	}
	return true, nil
}

// drain cordons and drains a Node and waits until its volumes are detached. The result is true if the Node is drained
// and its volumes are detached. The timeouts have the default values of a Machine's timeouts. After an outage of the
// target cluster, the timeouts start again.
func (c *Collector) drain(ctx context.Context, in *provider.Instance, node *corev1.Node,
	observation *Observation) (bool, error) {
	node, err := drain.Cordon(ctx, c.Target.LiveClient, node)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if epoch := c.Target.Epoch(); observation.Drain.UID != node.UID || observation.Drain.Epoch != epoch {
		c.forgetDrain(in)
		observation.Drain = Drain{Node: node.Name, UID: node.UID, StartTime: c.Clock.Now(), Epoch: epoch}
	}
	var timeouts v1beta1.MachineTimeouts
	ready := readiness(node)
	request := drain.Request{
		Subject: drain.Subject{Machine: drainKey(in), UID: in.MachineUID, Node: node.Name, NodeUID: node.UID,
			Epoch: observation.Drain.Epoch},
		Start: observation.Drain.StartTime, Deadline: observation.Drain.StartTime.Add(timeouts.DrainOrDefault()),
		NodeReachable: ready.Status != corev1.ConditionUnknown && ready.Status != "",
	}
	if ready.Status == corev1.ConditionFalse {
		request.NotReadySince = ready.LastTransitionTime.Time
	}
	outcome := c.Target.Drainer.CheckAndDrain(ctx, request)
	if outcome.IsDone && ready.Status == corev1.ConditionTrue {
		outcome = c.Target.Drainer.VolumesDetached(ctx, drain.VolumesRequest{
			Subject: request.Subject, ReportedVolumes: node.Status.VolumesAttached, DrainTime: outcome.LastPodGone,
			Timeout: timeouts.VolumeDetachOrDefault(),
		})
	}
	if !outcome.IsDone {
		c.log(ctx).Info("Draining the Node of an orphan before its removal", "node", node.Name, "progress",
			outcome.Message)
	}
	return outcome.IsDone, nil
}

// drainKey returns the key of a drain. The name in the key contains a space, so it cannot be the name of a Machine.
func drainKey(in *provider.Instance) types.NamespacedName {
	namespace, _, _ := strings.Cut(in.MachineKey, "/")
	return types.NamespacedName{Namespace: namespace, Name: "orphan " + in.ProviderID}
}

func (c *Collector) forgetDrain(in *provider.Instance) {
	if c.Target != nil {
		c.Target.Drainer.Forget(drainKey(in))
	}
}

func (c *Collector) endDrain(ctx context.Context, in *provider.Instance, observation *Observation) error {
	if c.Target == nil || observation.Drain.UID == "" {
		return nil
	}
	c.forgetDrain(in)
	node := &corev1.Node{}
	err := c.Target.LiveClient.Get(ctx, client.ObjectKey{Name: observation.Drain.Node}, node)
	if err == nil && node.UID == observation.Drain.UID {
		_, err = drain.Uncordon(ctx, c.Target.LiveClient, node)
	}
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	observation.Drain = Drain{}
	return nil
}

// markNodes annotates the Nodes of an instance that is about to be removed. Normally the controller of a Machine
// deletes its Node, but an orphan has no Machine. So deleteNodes deletes the annotated Nodes when the instance is gone.
func (c *Collector) markNodes(ctx context.Context, in *provider.Instance, source string) error {
	nodes, err := c.liveNodesOf(ctx, in)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if node.Spec.ProviderID == "" || node.Annotations[v1beta1.NodeAnnotationInstanceRemoved] == source {
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": node.UID, "annotations": map[string]string{v1beta1.NodeAnnotationInstanceRemoved: source},
		}})
		if err != nil {
			return fmt.Errorf("encode the patch of Node %s: %w", node.Name, err)
		}
		if err := c.Target.LiveClient.Patch(ctx, node,
			client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("annotate Node %s: %w", node.Name, err)
		}
	}
	return nil
}

// deleteNodes deletes annotated Nodes whose instances are in no list. deleteNodes keeps Ready Nodes, because their
// instance probably exists although the list lacks it. deleteNodes also keeps Nodes whose instance a Machine has
// recorded, because the Machine controller deletes these Nodes.
func (c *Collector) deleteNodes(ctx context.Context, known *snapshot, listed []*scope, found map[string]*scope) error {
	if c.Target == nil || !c.stable() {
		return nil
	}
	nodes, err := index.ListShared[corev1.Node](ctx, c.Target.Nodes, &corev1.NodeList{})
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	nodes = slices.DeleteFunc(nodes, func(n *corev1.Node) bool {
		source, marked := n.Annotations[v1beta1.NodeAnnotationInstanceRemoved]
		return !marked || n.Spec.ProviderID == "" || found[instanceOf(n)] != nil || isReady(n) || !listedBy(listed, source)
	})
	if len(nodes) == 0 {
		return nil
	}
	recorded := map[string]bool{}
	for _, id := range known.providerIDs {
		recorded[id] = true
	}
	var errs []error
	for _, node := range nodes {
		if !recorded[instanceOf(node)] {
			errs = append(errs, c.deleteNode(ctx, node))
		}
	}
	return errors.Join(errs...)
}

// deleteNode deletes a Node that a live read shows unchanged and not Ready.
func (c *Collector) deleteNode(ctx context.Context, cached *corev1.Node) error {
	node := &corev1.Node{}
	if err := c.Target.LiveClient.Get(ctx, client.ObjectKeyFromObject(cached), node); err != nil {
		return client.IgnoreNotFound(err)
	}
	if node.UID != cached.UID || node.Spec.ProviderID != cached.Spec.ProviderID || isReady(node) ||
		node.Annotations[v1beta1.NodeAnnotationInstance] != cached.Annotations[v1beta1.NodeAnnotationInstance] {
		return nil
	}
	uid := node.UID
	err := c.Target.LiveClient.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}},
		client.Preconditions{UID: &uid})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete Node %s: %w", node.Name, err)
	}
	c.log(ctx).Info("Deleted a Node whose instance and Machine are gone", "node", node.Name, "providerID",
		node.Spec.ProviderID)
	return nil
}
