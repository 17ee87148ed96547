// Package managercontrol declares the permissions of machinist-manager in the control cluster.
//
// +kubebuilder:rbac:groups=machinist.dev,resources=machinedeployments;machinesets,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=machinist.dev,resources=machinedeployments/status;machinesets/status,verbs=patch
// +kubebuilder:rbac:groups=machinist.dev,resources=machinesets,verbs=create;delete
// +kubebuilder:rbac:groups=machinist.dev,resources=machines,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=machinist.dev,resources=machineclasses;machinehealthchecks;machinedisruptionbudgets,verbs=list;watch
//
// The result of health checks is a condition of the Machine and the status of the check.
// +kubebuilder:rbac:groups=machinist.dev,resources=machines/status;machinehealthchecks/status,verbs=patch
//
// The status of a budget reports its usage.
// +kubebuilder:rbac:groups=machinist.dev,resources=machinedisruptionbudgets/status,verbs=patch
//
// A set blocks the deletion of its owner until the set is gone. If the API server enforces permissions for owner
// references, that requires this permission.
// +kubebuilder:rbac:groups=machinist.dev,resources=machinedeployments/finalizers;machinesets/finalizers,verbs=update
//
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
//
// The UID of kube-system identifies the control cluster.
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get
//
// The Lease of the leader, and the record of the cluster ID.
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=machinist-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=machinist-system,resources=leases,resourceNames=machinist-manager,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=configmaps,verbs=create
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=configmaps,resourceNames=machinist-cluster-id,verbs=get;update
//
// The certificate of the webhooks: its Secret, and the bundles in the two webhook configurations.
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=secrets,resourceNames=machinist-manager-webhook,verbs=list;watch;patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations;mutatingwebhookconfigurations,resourceNames=machinist-manager,verbs=list;watch;patch
//
// The API server decides who may read metrics.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
package managercontrol
