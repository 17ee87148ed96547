// Package providertarget declares the permissions of a provider process in the target cluster.
//
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch;delete
//
// A drain evicts pods, and deletes them near the deadline. The other permissions are needed to explain what blocks a
// drain.
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;delete
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list;watch
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims;persistentvolumes,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=list
//
// Bootstrap tokens. A token is extended if its machine has more time to join than the token is valid.
// +kubebuilder:rbac:groups="",namespace=kube-system,resources=secrets,verbs=get;create;patch;delete
//
// Certificate signing requests of kubelets show which machine joined as a Node. They are approved, except with
// --approve-kubelet-csrs=false.
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=list;watch
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/approval,verbs=patch
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=signers,resourceNames=kubernetes.io/kube-apiserver-client-kubelet;kubernetes.io/kubelet-serving,verbs=approve
//
// The process asks whether bootstrap tokens of machines may request certificates, before a machine tries.
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
package providertarget
