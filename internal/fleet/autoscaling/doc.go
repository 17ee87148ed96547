// Package autoscaling tells cluster-autoscaler what the Nodes of an empty node group will offer.
//
// A node group is a MachineDeployment or a MachineSet with the annotations of the autoscaler's smallest and largest
// size. While it has Nodes, the autoscaler takes one as a model. While it has none, the autoscaler reads annotations
// under capacity.cluster-autoscaler.kubernetes.io, which this package keeps on the group: Capacity computes them from
// the MachineClass and the template, the Reconciler writes them.
//
// The annotations are written by server-side apply without force, so the API server knows which ones are ours. One
// that a person wrote is theirs: it stays as it is, and wins. One of ours goes when its source goes.
//
// (kubernetes/autoscaler 1.36, cloudprovider/clusterapi: clusterapi_unstructured.go and clusterapi_utils.go say how the
// annotations are read, clusterapi_nodegroup.go which groups are left out.)
package autoscaling
