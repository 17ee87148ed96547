// Package migratornamespace declares the permissions of a migrator in the namespaces of the value migrator.namespaces of
// its chart: those of Migrations, of old objects, and of old controllers.
//
// The migrator creates the objects of Machinist, adds the data that the migration held back, and deletes the objects if
// the migration is aborted. A policy allows changes of no other objects of these kinds.
// +kubebuilder:rbac:groups=machinist.dev,resources=machines;machinesets;machinedeployments;machineclasses;machinehealthchecks,verbs=get;list;create;patch;delete
// +kubebuilder:rbac:groups=machinist.dev,resources=machinesets/finalizers;machinedeployments/finalizers,verbs=update
//
// The migrator copies credentials and bootstrap data, and stores findings and converted objects in ConfigMaps.
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;create;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;create;update;delete
//
// The migrator removes finalizers and owners of the old objects, and deletes them.
// +kubebuilder:rbac:groups=cluster.k8s.io;machine.sapcloud.io;machine.openshift.io,resources=*,verbs=patch;delete
//
// The fence scales the old controllers to 0, and takes their Leases.
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets,verbs=get
// +kubebuilder:rbac:groups=apps,resources=deployments/scale;statefulsets/scale,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update;delete
package migratornamespace
