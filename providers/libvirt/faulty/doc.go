// Package faulty is a proxy between the driver and libvirtd, inside of TLS. It simulates failures of a hypervisor: it
// loses, refuses, ignores or delays calls.
package faulty
