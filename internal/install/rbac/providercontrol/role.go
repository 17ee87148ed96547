// Package providercontrol declares the permissions of a provider process in the control cluster.
//
// +kubebuilder:rbac:groups=machinist.dev,resources=machines;machineclasses,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=machinist.dev,resources=machines/status;machineclasses/status,verbs=patch
//
// A set declares that its machines are of an old revision, whose Nodes are tainted.
// +kubebuilder:rbac:groups=machinist.dev,resources=machinesets,verbs=list;watch
//
// A preserved machine is deleted when its time is over.
// +kubebuilder:rbac:groups=machinist.dev,resources=machines,verbs=delete
//
// Credentials and user data are read when they are used. The watch is on metadata only. The patch adds the finalizer
// that keeps a Secret while a class refers to it.
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;patch
//
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=machinist-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=machinist-system,resources=leases,resourceNames=machinist-provider-PROVIDER,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=configmaps,verbs=create
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=configmaps,resourceNames=machinist-cluster-id;machinist-orphans,verbs=get;update
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
//
// The certificate of the webhook: its Secret, and the bundle in the webhook configuration. The rule for Secrets above
// does not include its creation. In the role of another provider, the names have the name of that provider.
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=machinist-provider-PROVIDER,verbs=list;watch;patch
//
// A mismatch of the cluster ID is reported by an event on its record. If this role is bound in one namespace only, the
// rule for events above does not include that event.
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=events,verbs=create;patch
package providercontrol
