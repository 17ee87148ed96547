// Package autoscaling publishes the capacity of the Nodes of an empty node group for cluster-autoscaler.
//
// A node group is a MachineDeployment or MachineSet with the annotations for the autoscaler's smallest and largest
// size. The autoscaler uses an existing Node as a model. For a group without Nodes, it reads annotations under
// capacity.cluster-autoscaler.kubernetes.io. Capacity computes these annotations from the MachineClass and the
// template, and the Reconciler applies them.
//
// The Reconciler uses server-side apply without force. An annotation of another owner, such as an administrator, stays
// and takes precedence. If the source of an annotation is removed, Machinist removes the annotation.
//
// For how the autoscaler reads the annotations, see kubernetes/autoscaler 1.36, cloudprovider/clusterapi,
// clusterapi_unstructured.go and clusterapi_utils.go. See clusterapi_nodegroup.go for the groups that the autoscaler
// skips.
package autoscaling
