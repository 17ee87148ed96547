// Package fakeazure is an Azure in memory, behind the wire format of the real one: the part of Azure Resource Manager
// and of Microsoft Entra that a provider of virtual machines meets. It serves HTTP; who wants the SDK to talk to it
// gives it TLS, since the SDK sends tokens to nobody else. Azure.Do carries out what was read in another way, as
// package sdkfake does.
//
// It keeps state (virtual machines, disks, interfaces, addresses, operations under way), checks requests as the
// published API does, and can be made to fail. Each behaviour names the page of the vendor's documentation that
// it imitates; what no page tells is what clients of the real one have reported of it. What it leaves out it refuses:
// an unknown path is an error, never an empty success.
//
// With Options.Hosts its machines live: they boot, read their custom data and join the cluster that is named there.
package fakeazure
