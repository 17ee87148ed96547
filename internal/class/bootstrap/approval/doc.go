// Package approval approves certificate requests of kubelets. It approves a request only if the request belongs to a
// Machine.
//
// Kubelets request three kinds of certificates. To join a cluster, a kubelet uses its bootstrap token to request a
// client certificate. Before this certificate expires, the kubelet uses it to request another client certificate. Some
// kubelets are configured to request serving certificates too.
//
// The first client certificate is approved only for the node name that the provider reports for the instance of the
// token's Machine. The other certificates are approved only for a Node that provably belongs to a Machine. In addition,
// a serving certificate is approved only for addresses that the provider reports for the instance. The status of a
// Machine is not a sufficient proof, because any client that may write the status could write the name of another Node.
// If only the guest reports an address to the provider, the address must be in a configured range, because the guest
// could report the address of an API server.
//
// If a request is not approved, it is left pending. Requests are never denied, because another approver may have more
// information, and because a request that arrived too early is approved later. Decide is a pure function that makes the
// decision. Reconciler reads the facts for Decide from caches. Before it approves a request, it reads the important
// facts again from the API servers.
package approval
