package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MachineDrain defines how the pods of a machine's Node are drained. A change also applies to a drain in progress.
type MachineDrain struct {
	// rules define which pods are not evicted, and in which order the other pods are evicted. The first rule that selects
	// a pod applies to this pod. If no rule selects a pod, the pod's label cluster.x-k8s.io/drain applies, with the value
	// skip or wait-completed. All other pods have the behavior Drain and the order 0. Mirror pods, pods of DaemonSets
	// and pods that have ended are never evicted, regardless of rules.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Rules []DrainRule `json:"rules,omitempty"`

	// podsWithVolumes defines whether pods with persistent volumes are evicted in parallel or one at a time. With
	// OneAtATime, such a pod is evicted only when no other pod with volumes is terminating on the Node, and when the
	// volumes of the earlier pods are detached from the Node. The drain waits for each volume for at most
	// timeouts.volumeDetach. Shortly before the end of timeouts.drain, the remaining pods are deleted together.
	// Defaults to Parallel.
	// +optional
	PodsWithVolumes VolumePodEviction `json:"podsWithVolumes,omitempty"`

	// singleReplicas defines what happens if a PodDisruptionBudget refuses the eviction of the only pod of a Deployment.
	// With Evict, the drain only tries again. With Restart, it also restarts the rollout of the Deployment once, so that a
	// new pod is available on another Node before the old pod ends. This requires permissions in the target cluster that
	// the value restartDeployments of the chart machinist-provider grants. Defaults to Evict.
	// +optional
	SingleReplicas SingleReplicaEviction `json:"singleReplicas,omitempty"`
}

// DrainRule defines the behavior of some pods during a drain.
//
// +kubebuilder:validation:XValidation:rule="!has(self.order) || self.behavior == 'Drain'",message="must not be set with behavior Skip or WaitCompleted",fieldPath=".order",reason="FieldValueForbidden"
type DrainRule struct {
	// name of the rule, a DNS label. If a drain waits because of the rule, the condition Drained contains the name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// podSelector selects pods by their labels. An empty selector selects all pods.
	// +required
	PodSelector metav1.LabelSelector `json:"podSelector"`

	// namespaceSelector selects the namespaces of the pods by their labels. Without a namespaceSelector, the rule
	// applies to pods in all namespaces.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// behavior of the drain towards the selected pods. Skip leaves the pods on the Node: they are not evicted, and the
	// drain waits neither for the pods nor for their volumes. WaitCompleted does not evict the pods, but waits until
	// they have ended. If a pod has not ended shortly before the end of timeouts.drain, it is deleted like all remaining
	// pods. Drain evicts the pods.
	// +required
	Behavior DrainBehavior `json:"behavior"`

	// order of the pods with behavior Drain. All pods with a lower order must be gone before pods with a higher order
	// are evicted. Pods with behavior WaitCompleted have the order 0. Shortly before the end of timeouts.drain, the
	// remaining pods are deleted without regard to their order. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=-2147483648
	Order int32 `json:"order,omitempty"`
}

// DrainBehavior is what a drain does with a pod.
//
// +kubebuilder:validation:Enum=Drain;Skip;WaitCompleted
type DrainBehavior string

// Behaviors of a drain.
const (
	// DrainBehaviorDrain evicts the pod.
	DrainBehaviorDrain DrainBehavior = "Drain"
	// DrainBehaviorSkip leaves the pod on the Node and does not wait for it.
	DrainBehaviorSkip DrainBehavior = "Skip"
	// DrainBehaviorWaitCompleted waits until the pod has ended.
	DrainBehaviorWaitCompleted DrainBehavior = "WaitCompleted"
)

// VolumePodEviction defines how pods with persistent volumes are evicted.
//
// +kubebuilder:validation:Enum=Parallel;OneAtATime
type VolumePodEviction string

// Values of VolumePodEviction.
const (
	// VolumePodsParallel evicts pods with volumes together with the other pods.
	VolumePodsParallel VolumePodEviction = "Parallel"
	// VolumePodsOneAtATime evicts the next pod with volumes when the volumes of the former pod are detached.
	VolumePodsOneAtATime VolumePodEviction = "OneAtATime"
)

// SingleReplicaEviction defines how the only pod of a Deployment is evicted if a PodDisruptionBudget protects it.
//
// +kubebuilder:validation:Enum=Evict;Restart
type SingleReplicaEviction string

// Values of SingleReplicaEviction.
const (
	// SingleReplicasEvict tries the eviction again until the budget allows it.
	SingleReplicasEvict SingleReplicaEviction = "Evict"
	// SingleReplicasRestart restarts the rollout of the Deployment.
	SingleReplicasRestart SingleReplicaEviction = "Restart"
)
