// Package migratorcontrol declares what a migrator may do in the control cluster. It is much, and meant for the time of
// a migration.
//
// +kubebuilder:rbac:groups=machinist.dev,resources=migrations,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=machinist.dev,resources=migrations/status,verbs=update
// +kubebuilder:rbac:groups=machinist.dev,resources=migrations/finalizers,verbs=update
//
// Machinist's objects are made, given what a migration held back, and removed when it is aborted.
// +kubebuilder:rbac:groups=machinist.dev,resources=machines;machinesets;machinedeployments;machineclasses;machinehealthchecks,verbs=get;list;create;patch;delete
// +kubebuilder:rbac:groups=machinist.dev,resources=machinesets/finalizers;machinedeployments/finalizers,verbs=update
//
// Credentials and bootstrap data are copied; findings and converted objects are in ConfigMaps. One of them is the
// record of the cluster id.
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;create;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;create;update;delete
//
// The old objects are read, lose finalizers and owners, and are deleted; then the definitions of their kinds.
// +kubebuilder:rbac:groups=machine.k8s.io;machines.k8s.io;cluster.k8s.io;machine.sapcloud.io;machine.openshift.io,resources=*,verbs=get;list;patch;delete
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;delete
//
// Admission webhooks for the old objects alone go before these, which a webhook without a server would keep.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations;mutatingwebhookconfigurations,verbs=list;delete
//
// The fence: the old controllers are scaled to 0, their Leases taken, and their objects closed to others.
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets,verbs=get
// +kubebuilder:rbac:groups=apps,resources=deployments/scale;statefulsets/scale,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update;delete
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,verbs=get;create;update;delete
//
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
package migratorcontrol
