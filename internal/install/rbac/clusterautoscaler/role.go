// Package clusterautoscaler declares the permissions of cluster-autoscaler in the control cluster. It runs with the
// provider clusterapi and CAPI_GROUP=machinist.dev. It reads node groups and machines, changes the size of groups, and
// marks the machines to delete first. In the target cluster, it needs the role of its own chart.
//
// +kubebuilder:rbac:groups=machinist.dev,resources=machinedeployments;machinesets,verbs=get;list;watch
// +kubebuilder:rbac:groups=machinist.dev,resources=machinedeployments/scale;machinesets/scale,verbs=get;patch;update
// +kubebuilder:rbac:groups=machinist.dev,resources=machines,verbs=get;list;watch;update
package clusterautoscaler
