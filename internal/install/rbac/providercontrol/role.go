// Package providercontrol declares what a provider process may do in the control cluster.
//
// +kubebuilder:rbac:groups=machinist.dev,resources=machines;machineclasses,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=machinist.dev,resources=machines/status;machineclasses/status,verbs=patch
//
// A machine that was preserved is deleted when its time is over.
// +kubebuilder:rbac:groups=machinist.dev,resources=machines,verbs=delete
//
// Credentials and user data are read when used; the watch is on metadata only. The patch is the finalizer that holds a
// Secret while a class refers to it.
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
// The certificate of the webhook: its Secret, which the rule for Secrets above covers but for its making, and the
// bundle in the webhook configuration of that name. Another provider's role has its own name in place of this one.
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=machinist-provider-PROVIDER,verbs=list;watch;patch
//
// That the cluster id is another one than the recorded one is an event of the record. Where this role is bound in one
// namespace only, the rule for events above does not cover it.
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=events,verbs=create;patch
package providercontrol
