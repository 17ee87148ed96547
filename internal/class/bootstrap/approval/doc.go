// Package approval approves the certificate requests of kubelets, each bound to one Machine.
//
// A kubelet asks for three kinds of certificate: a client certificate with its bootstrap token when it joins, a
// client certificate with the old one when that comes to its end, and, where its configuration reports it, serving
// certificates. The first is approved for the instance of the Machine that the token was made for and under the name
// that the provider says it will have; the others for the Node that a Machine is paired with, and the last only for
// the addresses that the provider itself gives the instance.
//
// What is not approved is left pending and never denied: another approver may know better, and a request that came
// before its time is approved when the time has come. Decide is the rule, as a pure function; Reconciler gathers the
// facts for it from caches, and reads those that an approval hangs on once more from the API servers before it
// approves.
package approval
