// Package openstack runs a real OpenStack on loopback.
package openstack
