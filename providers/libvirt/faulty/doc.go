// Package faulty is a proxy between the driver and libvirtd, inside TLS. The proxy simulates failures of a
// hypervisor: calls are lost, refused, ignored or delayed.
package faulty
