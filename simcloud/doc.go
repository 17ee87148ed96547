// Package simcloud contains the wire types of the simulated cloud and a client for its HTTP API.
//
// The simulated cloud is a separate process (command simcloud) with durable state. It offers instances as
// infrastructure clouds do: creation and deletion are asynchronous and idempotent, quotas and capacity run out, reads
// may lag behind writes, and calls fail. An instance that has booted behaves like a machine with a kubelet: it reads
// its user data, joins the cluster that is named there, and simulates the pods bound to it.
//
// [Client] is the API of customers, who authenticate with the token of an account. [Admin] is the API of the operator
// of the simulation: faults, settings, limits, statistics and a full dump.
//
// Neither client retries. There is one exception in net/http: it repeats a GET request if the server has closed the
// idle connection that the request uses.
package simcloud
