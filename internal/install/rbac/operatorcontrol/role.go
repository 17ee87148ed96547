// Package operatorcontrol declares what machinist-operator may do in its cluster: install provider processes, and
// therefore all that they may do, since nobody may give a right that he does not have.
//
// +kubebuilder:rbac:groups=machinist.dev,resources=providers,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=machinist.dev,resources=providers/status,verbs=patch
//
// Each object is read before it is compared. The watches are on the metadata of what the operator made.
// +kubebuilder:rbac:groups="",resources=services;serviceaccounts,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings;clusterroles;clusterrolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,verbs=get;list;watch;create;patch;delete
//
// Why a rollout stands is read from its pods, and Auto from the Nodes.
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list
//
// What else it makes is in its own namespace. Roles of providers are in kube-system and in the namespaces they work
// in, too.
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=services;serviceaccounts,verbs=create;patch;delete
// +kubebuilder:rbac:groups=apps,namespace=machinist-system,resources=deployments,verbs=create;patch;delete
// +kubebuilder:rbac:groups=policy,namespace=machinist-system,resources=poddisruptionbudgets,verbs=create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,namespace=machinist-system,resources=networkpolicies,verbs=create;patch;delete
// +kubebuilder:rbac:groups=monitoring.coreos.com,namespace=machinist-system,resources=servicemonitors,verbs=get;create;patch;delete
//
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=machinist-system,resources=leases,verbs=create
//
// From here on: what a provider process may do (packages providercontrol and providertarget), for a provider of any
// name. A test compares the two.
// +kubebuilder:rbac:groups=machinist.dev,resources=machines;machineclasses,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=machinist.dev,resources=machines/status;machineclasses/status,verbs=patch
// +kubebuilder:rbac:groups=machinist.dev,resources=machines,verbs=delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=machinist-system,resources=leases,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=configmaps,verbs=create
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=configmaps,resourceNames=machinist-cluster-id;machinist-orphans,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;delete
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list;watch
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims;persistentvolumes,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=list
// +kubebuilder:rbac:groups="",namespace=kube-system,resources=secrets,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=list;watch
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/approval,verbs=patch
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=signers,resourceNames=kubernetes.io/kube-apiserver-client-kubelet;kubernetes.io/kubelet-serving,verbs=approve
package operatorcontrol
