// Package operatorcontrol declares the permissions of machinist-operator in its cluster. It installs provider
// processes. It therefore needs all their permissions, because a client can only grant permissions that it has.
//
// +kubebuilder:rbac:groups=machinist.dev,resources=providers,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=machinist.dev,resources=providers/status,verbs=patch
//
// Objects are read to compare them. The watches are on the metadata of objects that the operator created.
// +kubebuilder:rbac:groups="",resources=services;serviceaccounts,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings;clusterroles;clusterrolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,verbs=get;list;watch;create;patch;delete
//
// The pods show why a rollout is stuck. The Nodes show the type of a Provider with the type Auto.
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list
//
// The operator creates all other objects in its own namespace. Roles of providers are also in kube-system and in the
// namespaces that the providers serve.
// +kubebuilder:rbac:groups="",namespace=machinist-system,resources=services;serviceaccounts,verbs=create;patch;delete
// +kubebuilder:rbac:groups=apps,namespace=machinist-system,resources=deployments,verbs=create;patch;delete
// +kubebuilder:rbac:groups=policy,namespace=machinist-system,resources=poddisruptionbudgets,verbs=create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,namespace=machinist-system,resources=networkpolicies,verbs=create;patch;delete
// +kubebuilder:rbac:groups=monitoring.coreos.com,namespace=machinist-system,resources=servicemonitors,verbs=get;create;patch;delete
//
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=machinist-system,resources=leases,verbs=create
//
// All following permissions are those of a provider process with any name (packages providercontrol and
// providertarget). A test compares them.
// +kubebuilder:rbac:groups=machinist.dev,resources=machines;machineclasses,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=machinist.dev,resources=machines/status;machineclasses/status,verbs=patch
// +kubebuilder:rbac:groups=machinist.dev,resources=machines,verbs=delete
// +kubebuilder:rbac:groups=machinist.dev,resources=machinesets,verbs=list;watch
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
