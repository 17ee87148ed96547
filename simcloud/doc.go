// Package simcloud contains the wire types of the simulated cloud and a client for its HTTP API.
//
// The simulated cloud is a separate process (command simcloud) with durable state. The simulated cloud behaves like
// an infrastructure cloud: creation and deletion are asynchronous and idempotent. Quotas and capacity run out, reads
// may lag behind writes, and calls fail. A booted instance behaves like a machine with a kubelet: it reads its user
// data, joins the cluster, and simulates the pods bound to it.
//
// [Client] calls the customer API with the token of an account. [Admin] calls the admin API: faults, settings, limits,
// statistics and a full dump.
//
// Neither client retries a failed request. The package net/http may repeat a GET request after the server has closed an
// idle connection.
package simcloud
