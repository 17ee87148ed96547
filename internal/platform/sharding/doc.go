// Package sharding divides the namespaces of the control cluster among processes, so that a fleet that is too large
// for one leader has several.
//
// A namespace is the smallest part. All that concerns machines of several owners stays within one: MachineSets claim
// Machines by a selector, a MachineDisruptionBudget and a MachineHealthCheck count all that they select, a MachineClass
// serves whoever names it, and a Secret serves a class. A process that knows a namespace whole can keep all of these
// promises by itself, as it does with --namespace; one that knows every fourth owner in it could keep none of them.
//
// Shard is a pure function of the name of a namespace and of the number of shards, so that processes need not agree on
// anything but that number. That they do agree is assured by the lease that all shards hold together (fence.Joint).
//
// The API server has a hash of its own for this (KEP-5866: ListOptions.ShardSelector, alpha in Kubernetes 1.36). It is
// not used: it takes the first bits of FNV-1a, in which the last characters of a name make next to no difference, so
// that team-a to team-z would all be in one of four shards (TestTheAPIServersHashKeepsSimilarNamesTogether). Instead
// each process drops what is not its own before it is decoded or stored.
package sharding
