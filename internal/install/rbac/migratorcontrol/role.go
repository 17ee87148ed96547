// Package migratorcontrol declares the permissions of a migrator in the control cluster. They are extensive, and meant
// only for the duration of a migration.
//
// +kubebuilder:rbac:groups=machinist.dev,resources=migrations,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=machinist.dev,resources=migrations/status,verbs=update
// +kubebuilder:rbac:groups=machinist.dev,resources=migrations/finalizers,verbs=update
//
// The migrator creates the objects of Machinist, adds the data that the migration held back, and deletes the objects if
// the migration is aborted.
// +kubebuilder:rbac:groups=machinist.dev,resources=machines;machinesets;machinedeployments;machineclasses;machinehealthchecks,verbs=get;list;create;patch;delete
// +kubebuilder:rbac:groups=machinist.dev,resources=machinesets/finalizers;machinedeployments/finalizers,verbs=update
//
// The migrator copies credentials and bootstrap data, and stores findings and converted objects in ConfigMaps. One
// ConfigMap is the record of the cluster ID.
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;create;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;create;update;delete
//
// The migrator reads the old objects, removes their finalizers and owners, and deletes them. After that, it deletes the
// definitions of their kinds.
// +kubebuilder:rbac:groups=machine.k8s.io;machines.k8s.io;cluster.k8s.io;machine.sapcloud.io;machine.openshift.io,resources=*,verbs=get;list;patch;delete
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;delete
//
// Before it deletes the old objects, the migrator deletes admission webhooks that are only for these objects, because a
// webhook without a server would prevent the deletion.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations;mutatingwebhookconfigurations,verbs=list;delete
//
// The fence scales the old controllers to 0, takes their Leases, and prevents changes of their objects by others.
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
