// Package simcloud holds the wire types of the simulated cloud and a client
// for its HTTP API.
//
// The simulated cloud is a process of its own (command simcloud) with durable
// state. It sells instances the way infrastructure clouds do: creation and
// deletion are asynchronous and idempotent, quotas and capacity run out, reads
// may lag writes, and calls fail. An instance that booted behaves like the
// machine of a kubelet: it reads its user data, joins the cluster named there
// and plays the pods bound to it.
//
// [Client] is the customer's side, authenticated by an account's token.
// [Admin] is the operator's side of the simulation: faults, settings, limits,
// statistics and a full dump.
//
// Neither client retries. The one exception is net/http's own: a GET that was
// sent over a kept-alive connection which the server had already closed is
// sent again.
package simcloud
