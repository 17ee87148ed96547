// Package clusterautoscaler declares the permissions of cluster-autoscaler in the control cluster, where it runs with
// its provider clusterapi and CAPI_GROUP=machinist.dev: it reads node groups and machines, changes the size of groups,
// and marks the machines that go first. In the target cluster it needs the role of its own chart.
//
// +kubebuilder:rbac:groups=machinist.dev,resources=machinedeployments;machinesets,verbs=get;list;watch
// +kubebuilder:rbac:groups=machinist.dev,resources=machinedeployments/scale;machinesets/scale,verbs=get;patch;update
// +kubebuilder:rbac:groups=machinist.dev,resources=machines,verbs=get;list;watch;update
package clusterautoscaler
