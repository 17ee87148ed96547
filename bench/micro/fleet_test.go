package micro

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machineset"
	"machinist.dev/machinist/internal/platform/nodemark"
)

const namespace = "default"

var (
	begun = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now   = begun.Add(time.Hour)
)

const setSize = 100

// fleet returns the objects of a settled fleet of n running machines. Each MachineDeployment has perSet machines.
func fleet(n, perSet int) (objects []client.Object) {
	objects = append(objects, class())
	for first := 0; first < n; first += perSet {
		d, s := owners(first/perSet, min(perSet, n-first))
		objects = append(objects, d, s)
		for i := first; i < min(first+perSet, n); i++ {
			objects = append(objects, machineOf(s, i), node(i))
		}
	}
	return objects
}

func class() *v1beta1.MachineClass {
	c := &v1beta1.MachineClass{ObjectMeta: metaOf("small", "class")}
	c.Spec.Provider = "fake"
	c.Spec.ProviderSpec = &runtime.RawExtension{Raw: []byte(`{"kind":"Fake"}`)}
	return c
}

func metaOf(name, uid string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(uid), ResourceVersion: "1", Generation: 1,
		CreationTimestamp: metav1.NewTime(begun),
	}
}

func ownedBy(kind, name, uid string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: v1beta1.GroupVersion.String(), Kind: kind, Name: name, UID: types.UID(uid), Controller: ptr.To(true),
		BlockOwnerDeletion: ptr.To(true),
	}}
}

func machineName(i int) string { return fmt.Sprintf("m-%05d", i) }

func machineOf(set *v1beta1.MachineSet, i int) *v1beta1.Machine {
	name := machineName(i)
	m, template := &v1beta1.Machine{ObjectMeta: metaOf(name, "machine-"+name)}, machineset.NewMachine(set, "fake")
	m.Labels, m.Annotations, m.Finalizers = template.Labels, template.Annotations, template.Finalizers
	m.OwnerReferences = ownedBy("MachineSet", set.Name, string(set.UID))
	m.Spec = *set.Spec.Template.Spec.DeepCopy()
	m.Spec.ProviderID = "fake:///" + name
	m.Status = v1beta1.MachineStatus{
		Phase: v1beta1.MachineRunning, ObservedGeneration: 1, Version: "v1.36.3",
		NodeRef: &v1beta1.NodeRef{Name: name, UID: types.UID("node-" + name)},
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"},
			{Type: corev1.NodeHostName, Address: name}},
		Instance: &v1beta1.InstanceStatus{
			State: v1beta1.InstanceRunning, Type: "small", Region: "r-1", Zone: "r-1a", NodeName: name, Provider: "fake",
			LaunchTime: ptr.To(metav1.NewTime(begun)),
		},
		Applied: &v1beta1.AppliedStatus{ClassName: "small", ProviderSpecHash: "0123456789abcdef0123456789abcdef",
			Version: "v1.36.3"},
	}
	for _, c := range []struct{ conditionType, reason string }{
		{v1beta1.ConditionLaunched, v1beta1.ReasonInstanceLaunched},
		{v1beta1.ConditionRegistered, v1beta1.ReasonNodeRegistered},
		{v1beta1.ConditionNodeHealthy, v1beta1.ReasonNodeReady}, {v1beta1.ConditionReady, v1beta1.ReasonMachineReady},
		{v1beta1.ConditionUpToDate, v1beta1.ReasonUpToDate},
	} {
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{
			Type: c.conditionType, Status: metav1.ConditionTrue, Reason: c.reason, ObservedGeneration: 1,
			LastTransitionTime: metav1.NewTime(begun),
		})
	}
	return m
}

// node returns the cached form of a Node to which the node template was applied.
func node(i int) *corev1.Node {
	name := machineName(i)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("node-" + name), ResourceVersion: "1", CreationTimestamp: metav1.NewTime(begun),
		Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"},
		Annotations: map[string]string{v1beta1.NodeAnnotationMachine: name, v1beta1.NodeAnnotationClusterNamespace: namespace,
			v1beta1.NodeAnnotationInstance: nodemark.Mark{ClusterID: "cluster", Provider: "fake", Class: "small",
				ProviderID: "fake:///" + name}.String()},
	}}
	n.Spec.ProviderID = "fake:///" + name
	n.Status.NodeInfo.KubeletVersion = "v1.36.3"
	for _, c := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
		corev1.NodePIDPressure, corev1.NodeReady} {
		status := corev1.ConditionFalse
		if c == corev1.NodeReady {
			status = corev1.ConditionTrue
		}
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: c, Status: status, Reason: "Because",
			LastTransitionTime: metav1.NewTime(begun)})
	}
	return n
}

func deploymentName(i int) string { return fmt.Sprintf("d-%d", i) }

func owners(i, replicas int) (*v1beta1.MachineDeployment, *v1beta1.MachineSet) {
	name := deploymentName(i)
	labels := map[string]string{"pool": name}
	d := &v1beta1.MachineDeployment{ObjectMeta: metaOf(name, "deployment-"+name)}
	d.Spec.Replicas = ptr.To(int32(replicas))
	d.Spec.Selector.MatchLabels = labels
	d.Spec.Template.ObjectMeta.Labels = labels
	d.Spec.Template.Spec.ClassRef = &v1beta1.LocalRef{Name: "small"}
	d.Spec.Template.Spec.Version = "v1.36.3"
	d.Spec.Template.Spec.Node.Labels = labels

	s := &v1beta1.MachineSet{ObjectMeta: metaOf(name+"-1", "set-"+name)}
	s.OwnerReferences = ownedBy("MachineDeployment", name, "deployment-"+name)
	s.Labels = map[string]string{"pool": name, v1beta1.LabelTemplateHash: "1", v1beta1.LabelMachineDeployment: name}
	s.Annotations = map[string]string{v1beta1.AnnotationRevision: "1"}
	s.Spec.Replicas = d.Spec.Replicas
	s.Spec.Selector.MatchLabels = s.Labels
	s.Spec.Template = *d.Spec.Template.DeepCopy()
	s.Spec.Template.ObjectMeta.Labels = s.Labels
	s.Status.ObservedGeneration = 1
	s.Status.Replicas, s.Status.ReadyReplicas, s.Status.AvailableReplicas = int32(replicas), int32(replicas), int32(replicas)
	return d, s
}
