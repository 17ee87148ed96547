// Package autoscaling publishes the capacity of the Nodes of an empty node group for cluster-autoscaler.
//
// A node group is a MachineDeployment or a MachineSet with the annotations for the autoscaler's smallest and largest
// size. While the group has Nodes, the autoscaler uses one of them as a model. While it has none, the autoscaler reads
// annotations under capacity.cluster-autoscaler.kubernetes.io. This package writes these annotations: Capacity computes
// them from the MachineClass and the template, and the Reconciler applies them to the group.
//
// The Reconciler uses server-side apply without force, so the API server knows which annotations Machinist owns. An
// annotation of another owner, for example of an administrator, stays as it is and takes precedence. If the source
// of an annotation of Machinist is removed, Machinist removes the annotation.
//
// For how the autoscaler reads the annotations, see kubernetes/autoscaler 1.36, cloudprovider/clusterapi,
// clusterapi_unstructured.go and clusterapi_utils.go. See clusterapi_nodegroup.go for the groups that the autoscaler
// skips.
package autoscaling
