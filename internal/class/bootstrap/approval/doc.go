// Package approval approves the certificate requests of kubelets. Each approval is bound to one Machine.
//
// Kubelets request three kinds of certificates. To join, a kubelet requests a client certificate with the bootstrap
// token. Before that certificate expires, it requests a new one with the current one. If its configuration enables it,
// it also requests serving certificates.
//
// The first kind is approved for the instance of the token's Machine, and only for the node name that the provider
// reports for it. The other kinds are approved for Nodes that are proven to belong to a Machine. A serving certificate
// is approved only for addresses that the provider reports for the instance. The status of a Machine is never the only
// proof, because any client that may write the status could name another Node there. An address that only the guest
// reports to the provider counts only in configured ranges, because the guest could report the address of an API server.
//
// Requests that are not approved are left pending and never denied. Another approver may have more information, and a
// request that arrived too early is approved later. Decide is the rule, as a pure function. Reconciler gathers the
// facts for it from caches. Before it approves, it reads the important facts again from the API servers.
package approval
