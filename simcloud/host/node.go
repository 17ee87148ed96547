package host

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"machinist.dev/machinist/simcloud"
)

// register creates the Node. Like a kubelet, it updates the labels and the status of an existing Node and keeps all
// other fields.
func (m *machine) register(ctx context.Context) error {
	now := m.clock.Now()
	m.registrationTime, m.registrationDone = now, false
	wanted := m.node(now)
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node, err := m.conn.core.Nodes().Create(call, wanted, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		former, err := m.conn.core.Nodes().Get(call, m.spec.Hostname, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if node, err = m.syncNode(ctx, true, true); err != nil {
			return err
		}
		if boot := former.Status.NodeInfo.BootID; boot != "" && boot != wanted.Status.NodeInfo.BootID {
			m.printf("kubelet: node %s has been rebooted", node.Name)
			m.nodeEvent(corev1.EventTypeWarning, "Rebooted", "Node "+node.Name+" has been rebooted, boot id: "+
				wanted.Status.NodeInfo.BootID)
			m.mu.Lock()
			m.rebooted = true
			m.mu.Unlock()
		}
		m.nodeCreated = false
		m.printf("kubelet: node %s exists already", node.Name)
		if node.Spec.ProviderID != "" && node.Spec.ProviderID != m.spec.ProviderID {
			m.printf("kubelet: node %s has the provider ID %s, which is not that of this machine", node.Name,
				node.Spec.ProviderID)
		}
	case err != nil:
		return err
	default:
		m.nodeCreated = true
		m.printf("kubelet: registered node %s", node.Name)
	}
	if err := m.makeCSINode(call, node); err != nil {
		return err
	}
	m.registrationDone = true
	m.mu.Lock()
	m.nodeUID = node.UID
	m.mu.Unlock()
	m.report(simcloud.HostJoined, "")
	return nil
}

// syncNode updates the labels and the status of the existing Node. If report is true, syncNode also updates the
// heartbeat. If registers is true, it also updates the fields that a kubelet sets only when it registers the Node.
func (m *machine) syncNode(ctx context.Context, registers, report bool) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	o := metav1.GetOptions{}
	if !report {
		o.ResourceVersion = "0" // A check may use the cache of the server.
	}
	node, err := m.conn.core.Nodes().Get(ctx, m.spec.Hostname, o)
	if err != nil {
		return nil, fmt.Errorf("read the node: %w", err)
	}
	next := updatedNode(node, m.node(m.clock.Now()), registers, report)
	if maps.Equal(node.Labels, next.Labels) && maps.Equal(node.Annotations, next.Annotations) &&
		equality.Semantic.DeepEqual(node.Status, next.Status) {
		return node, nil
	}
	patch, err := difference(node, next)
	if err != nil {
		return nil, err
	}
	wasReady := isReady(node)
	// The status endpoint also accepts labels, and a kubelet needs access to it anyway.
	node, err = m.conn.core.Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return nil, fmt.Errorf("update the node: %w", err)
	}
	if isReady(node) && !wasReady {
		m.nodeEvent(corev1.EventTypeNormal, "NodeReady", "Node "+node.Name+" status is now: NodeReady")
	}
	return node, nil
}

func isReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// ownLabels are the labels that a kubelet also sets on an existing Node. The first two labels are set at every status
// update. All other labels are set only when the kubelet registers the Node.
var ownLabels = []string{corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelHostname, labelBetaOS, labelBetaArch,
	corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone,
	corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceTypeStable, corev1.LabelInstanceType}

// updatedNode returns a copy of the existing Node, with the labels and the status of fresh. If report is false,
// unchanged conditions keep their heartbeat time.
func updatedNode(existing, fresh *corev1.Node, registers, report bool) *corev1.Node {
	next := existing.DeepCopy()
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	own := ownLabels[:2]
	if registers {
		own = ownLabels
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, annotationAttach, fresh.Annotations[annotationAttach])
	}
	for _, key := range own {
		if value, given := fresh.Labels[key]; given {
			next.Labels[key] = value
		}
	}
	next.Status.Capacity = withExtended(fresh.Status.Capacity, existing.Status.Capacity)
	next.Status.Allocatable = withExtended(fresh.Status.Allocatable, existing.Status.Capacity)
	next.Status.Addresses, next.Status.NodeInfo = fresh.Status.Addresses, fresh.Status.NodeInfo
	next.Status.DaemonEndpoints, next.Status.Images = fresh.Status.DaemonEndpoints, fresh.Status.Images
	next.Status.RuntimeHandlers, next.Status.Features = fresh.Status.RuntimeHandlers, fresh.Status.Features
	next.Status.VolumesInUse = nil // Simulated pods mount no volumes.
	for _, condition := range fresh.Status.Conditions {
		setCondition(&next.Status, condition, report)
	}
	return next
}

// withExtended keeps the extended resources that other clients set. If a resource belongs to a device that the machine
// no longer has, its quantity becomes 0.
func withExtended(own, existing corev1.ResourceList) corev1.ResourceList {
	for name, quantity := range existing {
		if _, mine := own[name]; mine || !strings.Contains(string(name), "/") {
			continue
		}
		if own[name] = quantity; name == resourceGPU {
			own[name] = *resource.NewQuantity(0, resource.DecimalSI)
		}
	}
	return own
}

// migratedPlugins are the in-tree volume plugins that CSI drivers replace in a v1.36 kubelet.
const migratedPlugins = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file," +
	"kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"

// makeCSINode creates the CSINode. Without a CSINode, a Node does not become ready.
func (m *machine) makeCSINode(ctx context.Context, node *corev1.Node) error {
	_, err := m.conn.storage.CSINodes().Create(ctx, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, Annotations: map[string]string{"storage.alpha.kubernetes.io/migrated-plugins": migratedPlugins},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the CSINode: %w", err)
	}
	return nil
}

func difference(node, next *corev1.Node) ([]byte, error) {
	var data [2][]byte
	for i, n := range []*corev1.Node{node, next} {
		var err error
		if data[i], err = json.Marshal(n); err != nil {
			return nil, fmt.Errorf("encode the node: %w", err)
		}
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(data[0], data[1], corev1.Node{})
	if err != nil {
		return nil, fmt.Errorf("compare the nodes: %w", err)
	}
	return patch, nil
}

// setCondition replaces a condition. The transition time stays if the status does not change.
func setCondition(status *corev1.NodeStatus, condition corev1.NodeCondition, report bool) {
	for i, old := range status.Conditions {
		if old.Type != condition.Type {
			continue
		}
		if old.Status == condition.Status {
			condition.LastTransitionTime = old.LastTransitionTime
			if !report && old.Reason == condition.Reason && old.Message == condition.Message {
				condition.LastHeartbeatTime = old.LastHeartbeatTime
			}
		}
		status.Conditions[i] = condition
		return
	}
	status.Conditions = append(status.Conditions, condition)
}
