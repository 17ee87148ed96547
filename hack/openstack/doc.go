// Package openstack runs a real OpenStack on loopback: Debian's keystone, placement, glance, neutron, nova and cinder
// with MariaDB and RabbitMQ, each a process that a test can kill and start again.
//
// A double of a cloud does what its author believes that the cloud does. Here a driver meets the real services: their
// schemas, their messages, their states on the way and their order of events. Nothing below them is real. Nova's fake
// driver runs servers that are only entries in a table, our mechanism driver binds every port, and our volume driver
// makes volumes without disks (python/machinist_openstack). So no guest boots, but a test can read what the guest would
// read, from the metadata service.
//
// # Programs
//
// install.sh downloads Debian's packages and unpacks them into the project's cache. It installs nothing: the system
// keeps its packages and its configuration, and removing the folder removes all. It needs Debian 12 and apt, and root
// only where apt has no lists yet.
//
// # Starting
//
// All processes run in the folder of their cloud and listen on 127.0.0.1, at ports that are chosen at each start;
// MariaDB and its users meet at a socket in that folder. So clouds run side by side, and nothing of one is found
// outside of its folder. They are children of this process and die with it.
//
// The first start makes the databases, seeds them through the APIs and copies MariaDB's, keystone's and glance's files
// into the cache: the snapshot. Every later start begins with a copy of it. Its name has a hash of all that decides
// what is in it, so a change of these makes a new one; delete old ones at will. Ports and folders are the only
// difference between clouds that the databases know; MariaDB corrects them when it starts (updateURLs).
//
// Services start together, with few exceptions (needs): some ask another one a single time and end without its answer.
//
// # Faults
//
// Kill ends all processes of a service as a crash would, StartService starts it again, and AwaitReady returns when the
// cloud can be used again. To listen is not enough for that: a service that takes its work from a message queue is
// ready when RabbitMQ knows it as a consumer, and when the database has a report of this life of it. A host that is
// killed counts as down 15 seconds after its last report; services report every three seconds.
//
// # Seed
//
// Seeded has the names and IDs of what is in every cloud: a project with a user who is no administrator, flavors (three
// of them fit no host), images, networks, security groups, volume types, and three hosts, each alone in its
// availability zone. Quotas are unlimited; tests that need one set it as admin.
package openstack
