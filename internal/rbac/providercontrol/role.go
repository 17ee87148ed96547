// Package providercontrol declares what a provider process may do in the control cluster.
//
// +kubebuilder:rbac:groups=machinist.dev,resources=machines;machineclasses,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=machinist.dev,resources=machines/status;machineclasses/status,verbs=patch
//
// Credentials and user data are read when used; the watch is on metadata only. The patch is the finalizer that holds a
// Secret while a class refers to it.
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;patch
//
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=machinist-system,resources=leases,verbs=get;create;update
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=configmaps,verbs=create
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=configmaps,resourceNames=machinist-cluster-id,verbs=get;update
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
package providercontrol
