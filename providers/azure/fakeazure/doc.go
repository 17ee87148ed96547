// Package fakeazure is a fake Azure in memory with the wire format of the real Azure. The package implements the
// parts of Azure Resource Manager and Microsoft Entra that a provider of virtual machines uses. The fake serves HTTP.
// Clients of the SDK require TLS, because the SDK sends tokens only over TLS.
//
// The state consists of virtual machines, disks, interfaces, addresses and operations in progress. Requests are
// checked as by the published API, and faults can be injected. Comments link to Azure's documentation of each
// behavior. Some behaviors are not documented, but users of Azure have reported them. Unknown requests are errors,
// never an empty success.
//
// With Options.Hosts, the machines boot, read their custom data and join a cluster.
package fakeazure
