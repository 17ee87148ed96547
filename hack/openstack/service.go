package openstack

import (
	"fmt"
	"slices"
)

// Service is a program of the cloud that can be killed and started separately.
type Service string

// A service is one program and its child processes. RabbitMQ also includes the port mapper of Erlang.
const (
	MariaDB         Service = "mariadb"
	RabbitMQ        Service = "rabbitmq"
	Keystone        Service = "keystone"
	Placement       Service = "placement"
	Glance          Service = "glance"
	Neutron         Service = "neutron"
	NovaAPI         Service = "nova-api"
	NovaMetadata    Service = "nova-metadata"
	NovaConductor   Service = "nova-conductor"
	NovaScheduler   Service = "nova-scheduler"
	NovaCompute1    Service = "nova-compute-1" // the host of availability zone az-1
	NovaCompute2    Service = "nova-compute-2" // the host of az-2
	NovaCompute3    Service = "nova-compute-3" // the host of az-3
	CinderAPI       Service = "cinder-api"
	CinderScheduler Service = "cinder-scheduler"
	CinderVolume    Service = "cinder-volume"
)

// Services returns all services in the order of their dependencies.
func Services() []Service {
	return []Service{
		MariaDB, RabbitMQ, Keystone, Placement, Glance, Neutron, NovaAPI, NovaMetadata, NovaConductor, NovaScheduler,
		CinderAPI, CinderScheduler, CinderVolume, NovaCompute1, NovaCompute2, NovaCompute3,
	}
}

// NovaCompute returns the three services that run servers, in the zones az-1, az-2 and az-3.
func NovaCompute() []Service { return []Service{NovaCompute1, NovaCompute2, NovaCompute3} }

// AvailabilityZone returns the zone of a service of NovaCompute.
func AvailabilityZone(compute Service) (string, error) {
	i := slices.Index(NovaCompute(), compute)
	if i < 0 {
		return "", fmt.Errorf("%s runs no servers, so it is not in an availability zone", compute)
	}
	return fmt.Sprintf("az-%d", i+1), nil
}

// host returns the host name of a compute service in nova.
func host(compute Service) string { return "host-" + string(compute[len(compute)-1:]) }

func isCompute(s Service) bool { return slices.Contains(NovaCompute(), s) }

// queues returns the message queues that a service consumes.
func queues(s Service) []string {
	switch s {
	case NovaConductor:
		return []string{"conductor"}
	case NovaScheduler:
		return []string{"scheduler"}
	case CinderScheduler:
		return []string{"cinder-scheduler"}
	case CinderVolume:
		return []string{"cinder-volume.cinder@loop"}
	}
	if isCompute(s) {
		return []string{"compute." + host(s)}
	}
	return nil
}
