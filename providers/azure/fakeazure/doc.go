// Package fakeazure is a fake Azure in memory with the wire format of the real one. It implements the parts of Azure
// Resource Manager and Microsoft Entra that a provider of virtual machines uses. It serves HTTP. Clients of the SDK
// require TLS, because the SDK refuses to send tokens without it. Azure.Do executes requests that another package, such
// as sdkfake, has parsed.
//
// It keeps state (virtual machines, disks, interfaces, addresses, operations in progress), checks requests as the
// published API does, and can inject faults. Comments link to the vendor's documentation of each behavior. If a
// behavior is not documented, the fake follows reports from users of the real Azure. Requests that are not implemented
// are refused: an unknown path is an error, never an empty success.
//
// With Options.Hosts, the machines boot, read their custom data and join the cluster that this data names.
package fakeazure
