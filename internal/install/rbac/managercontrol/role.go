// Package managercontrol declares what machinist-manager may do in the control cluster.
//
// +kubebuilder:rbac:groups=machinist.dev,resources=machinedeployments;machinesets,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=machinist.dev,resources=machinedeployments/status;machinesets/status,verbs=patch
// +kubebuilder:rbac:groups=machinist.dev,resources=machinesets,verbs=create;delete
// +kubebuilder:rbac:groups=machinist.dev,resources=machines,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=machinist.dev,resources=machineclasses;machinehealthchecks;machinedisruptionbudgets,verbs=list;watch
//
// The decision of health checks: one condition of a Machine, and the check's own status.
// +kubebuilder:rbac:groups=machinist.dev,resources=machines/status;machinehealthchecks/status,verbs=patch
//
// How much of each budget is used.
// +kubebuilder:rbac:groups=machinist.dev,resources=machinedisruptionbudgets/status,verbs=patch
//
// A set blocks the deletion of its owner until it is gone, which takes this where owner references are enforced.
// +kubebuilder:rbac:groups=machinist.dev,resources=machinedeployments/finalizers;machinesets/finalizers,verbs=update
//
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
//
// The UID of kube-system identifies the control cluster.
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get
//
// The lease of the leader, and the record of the cluster's identity.
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=machinist-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=machinist-system,resources=leases,resourceNames=machinist-manager,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=configmaps,verbs=create
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=configmaps,resourceNames=machinist-cluster-id,verbs=get;update
//
// The certificate of the webhooks: its Secret, and the bundles in the two webhook configurations of that name.
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=secrets,resourceNames=machinist-manager-webhook,verbs=list;watch;patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations;mutatingwebhookconfigurations,resourceNames=machinist-manager,verbs=list;watch;patch
//
// Who may read metrics is asked of the API server.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
package managercontrol
