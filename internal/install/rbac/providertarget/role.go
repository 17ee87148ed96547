// Package providertarget declares what a provider process may do in the target cluster.
//
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch;delete
//
// Draining: pods are evicted, and deleted when the deadline is near; the rest explains what holds a drain up.
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;delete
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list;watch
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims;persistentvolumes,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=list
//
// Bootstrap tokens. One is extended while its machine has longer to join than a token lives.
// +kubebuilder:rbac:groups="",namespace=kube-system,resources=secrets,verbs=get;create;patch;delete
//
// The requests for kubelets' certificates tell which machine joined as a node, and are approved, unless
// --approve-kubelet-csrs=false.
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=list;watch
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/approval,verbs=patch
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=signers,resourceNames=kubernetes.io/kube-apiserver-client-kubelet;kubernetes.io/kubelet-serving,verbs=approve
//
// Whether bootstrap tokens of machines may request certificates is asked before one has tried.
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
package providertarget
