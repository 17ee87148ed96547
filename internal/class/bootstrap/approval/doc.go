// Package approval approves certificate requests of kubelets that belong to a Machine.
//
// A joining kubelet uses its bootstrap token to request a client certificate, and later uses this certificate to renew
// it. Some kubelets also request serving certificates.
//
// The first client certificate is approved only for the node name that the provider reports for the instance of the
// token's Machine. The other certificates are approved only for a Node that provably belongs to a Machine, and
// serving certificates only for addresses that the provider reports. The status of a Machine proves nothing, because
// other clients may write it. An address that only the guest reports must be in a configured range, because the guest
// could report the address of an API server.
//
// Other requests stay pending and are never denied. Another approver may know more, and a request that arrives too
// early is approved later. Decide is a pure function. Reconciler reads the facts from caches and confirms the
// important facts with live reads before an approval.
package approval
