// Package faulty stands between the driver and libvirtd, inside of TLS, and behaves on request as hypervisors do when
// something is wrong: calls are lost, refused, not answered or done late.
package faulty
