// Package migratorcontrol declares the permissions of a migrator in the control cluster as a whole, and in its own
// namespace. Package migratornamespace declares the others. They are meant only for the duration of a migration.
//
// +kubebuilder:rbac:groups=machinist.dev,resources=migrations,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=machinist.dev,resources=migrations/status,verbs=update
// +kubebuilder:rbac:groups=machinist.dev,resources=migrations/finalizers,verbs=update
//
// Two Machines must not have the same instance, even in different namespaces.
// +kubebuilder:rbac:groups=machinist.dev,resources=machines,verbs=list
//
// The definitions of the old kinds are deleted only if no namespace has an object of these kinds. Two old systems have
// only kinds without a namespace.
// +kubebuilder:rbac:groups=machine.k8s.io;machines.k8s.io;cluster.k8s.io;machine.sapcloud.io;machine.openshift.io,resources=*,verbs=get;list
// +kubebuilder:rbac:groups=machine.k8s.io;machines.k8s.io,resources=*,verbs=patch;delete
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=machines.machine.k8s.io;machines.machines.k8s.io;machineclasses.cluster.k8s.io;machinedeployments.cluster.k8s.io;machinesets.cluster.k8s.io;machines.cluster.k8s.io;machineclasses.machine.sapcloud.io;machinedeployments.machine.sapcloud.io;machinesets.machine.sapcloud.io;machines.machine.sapcloud.io,verbs=get;delete
//
// Before it deletes the old objects, the migrator deletes admission webhooks that are only for these objects, because a
// webhook without a server would prevent the deletion. A policy allows the deletion of no other webhooks.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations;mutatingwebhookconfigurations,verbs=list;delete
//
// The chart installs the policies that protect the old objects. The migrator only checks that they exist.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=machinist-migrator-PROVIDER-old;machinist-migrator-PROVIDER-new,verbs=get
//
// The Lease of the leader, the record of the cluster ID, and what the policies protect for each Migration. A policy
// allows changes of no other ConfigMaps.
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=machinist-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=machinist-system,resources=leases,resourceNames=machinist-migrator-PROVIDER,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=configmaps,verbs=get;create;update;delete
//
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
package migratorcontrol
