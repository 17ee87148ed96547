// Package openstack runs a real OpenStack on the loopback address: keystone, placement, glance, neutron, nova and
// cinder from Debian, with MariaDB and RabbitMQ. A test can kill each process and start it again.
//
// A fake cloud shows only the behavior that its author knows. This package tests a driver against the real services:
// their schemas, error messages, intermediate states and order of events. Everything below the services is fake. With
// the fake driver of nova, a server is only an entry in a table. The drivers in python/machinist_openstack simulate the
// backends of neutron and cinder: ports have no network behind them, and volumes have no disks. No guest boots, but a
// test can read the metadata of a guest.
//
// # Programs
//
// The script install.sh unpacks Debian packages into the cache of this project without installing them. The packages
// and the configuration of the system do not change. To remove everything, delete the folder. The script needs Debian
// 12 and apt. The script needs root only if apt has no package lists.
//
// # Starting
//
// All processes of a cloud run in its folder and listen on 127.0.0.1, on ports that are chosen at each start. Services
// connect to MariaDB over a socket in that folder. Several clouds can therefore run at the same time, and a cloud
// leaves no files outside of its folder. The processes are children of this process and end with it.
//
// The first start creates the databases, seeds them through the APIs, and copies the files of MariaDB, keystone and
// glance into the cache. This copy is the snapshot. When the next cloud starts, it copies the snapshot instead of
// creating the databases. The name of the snapshot contains a hash of all files that determine its content. If one of
// these files changes, the next start creates a new snapshot. Old snapshots can be deleted at any time. The databases
// of two clouds differ only in ports and folders. When MariaDB starts, the statements of updateURLs set the ports and
// folders of this cloud.
//
// Services start in parallel, except that a service waits until its prerequisites listen. Some services end if a
// prerequisite does not respond to their first request.
//
// # Faults
//
// The method Kill kills all processes of a service to simulate a crash. StartService starts the service again, and
// AwaitReady waits until the cloud can be used. An open port is not sufficient: a service must also consume its message
// queue in RabbitMQ, and must have reported to the database since its start. A killed host counts as down 15 seconds
// after its last report. Services report every three seconds.
//
// # Seed
//
// SeedObjects contains the names and IDs of the objects in every cloud: a project with a user who is not an
// administrator, flavors, images, networks, security groups and volume types. Three of the flavors need more
// resources than any host has. The cloud has three hosts, each in its own availability zone. The host of az-3 has only
// 7.5 GiB of memory for servers, so that a test can fill it. Quotas are unlimited. If a test needs a quota, it sets the
// quota as admin.
package openstack
