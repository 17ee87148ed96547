package fakeaws

import "slices"

// instanceType is an instance type that the region offers.
type instanceType struct {
	name       string
	vcpus      int
	memoryMiB  int
	gpus       int
	arch       string
	zones      []string // letters
	interfaces int
	addresses  int // IPv4 addresses for each interface
	spot       bool
}

func instanceTypes() []instanceType {
	all := []string{"a", "b", "c"}
	return []instanceType{
		{"t3.medium", 2, 4096, 0, "x86_64", all, 3, 6, true},
		{"m6i.large", 2, 8192, 0, "x86_64", all, 3, 10, true},
		{"m6i.xlarge", 4, 16384, 0, "x86_64", all, 4, 15, true},
		{"m6g.large", 2, 8192, 0, "arm64", all[:2], 3, 10, true},
		{"g5.xlarge", 4, 16384, 1, "x86_64", all[:1], 4, 15, true},
		{"mac2.metal", 8, 16384, 0, "arm64_mac", all[:1], 8, 30, false},
	}
}

func typeNamed(name string) (instanceType, bool) {
	i := slices.IndexFunc(instanceTypes(), func(t instanceType) bool { return t.name == name })
	if i < 0 {
		return instanceType{}, false
	}
	return instanceTypes()[i], true
}

// image is an AMI.
type image struct {
	id, name, arch, rootDevice, snapshot string
	sizeGiB                              int
	created                              string
}

// images returns the AMIs. All belong to the account "099720109477".
func images() []image {
	return []image{
		{"ami-0a000000000000001", "node-x86-1", "x86_64", "/dev/xvda", "snap-0a000000000000001", 8,
			"2026-01-10T08:00:00.000Z"},
		{"ami-0a000000000000002", "node-x86-2", "x86_64", "/dev/xvda", "snap-0a000000000000002", 8,
			"2026-03-10T08:00:00.000Z"},
		{"ami-0a000000000000003", "node-arm-1", "arm64", "/dev/sda1", "snap-0a000000000000003", 10,
			"2026-02-10T08:00:00.000Z"},
	}
}

func imageWith(id string) (image, bool) {
	i := slices.IndexFunc(images(), func(m image) bool { return m.id == id })
	if i < 0 {
		return image{}, false
	}
	return images()[i], true
}

// subnet is a subnet with a private IPv4 range 10.N.0.0/16, where N is its net.
type subnet struct {
	id, vpc, zone string // The zone is a letter.
	net           int
	ipv6          bool
	tags          map[string]string
}

func subnets() []subnet {
	return []subnet{
		{"subnet-0a000000000000001", "vpc-0a000000000000001", "a", 20, true, map[string]string{"role": "nodes",
			"zone": "a"}},
		{"subnet-0a000000000000002", "vpc-0a000000000000001", "b", 21, false, map[string]string{"role": "nodes",
			"zone": "b"}},
		{"subnet-0a000000000000003", "vpc-0a000000000000001", "c", 22, false, map[string]string{"role": "pods",
			"zone": "c"}},
		{"subnet-0b000000000000001", "vpc-0b000000000000001", "a", 30, false, nil},
	}
}

func subnetWith(id string) (subnet, bool) {
	i := slices.IndexFunc(subnets(), func(s subnet) bool { return s.id == id })
	if i < 0 {
		return subnet{}, false
	}
	return subnets()[i], true
}

// securityGroup is a security group of a VPC.
type securityGroup struct {
	id, name, vpc string
	tags          map[string]string
}

func securityGroups() []securityGroup {
	return []securityGroup{
		{"sg-0a000000000000001", "nodes", "vpc-0a000000000000001", map[string]string{"role": "nodes"}},
		{"sg-0a000000000000002", "extra", "vpc-0a000000000000001", map[string]string{"role": "extra"}},
		{"sg-0b000000000000001", "nodes", "vpc-0b000000000000001", nil},
	}
}

func groupWith(id string) (securityGroup, bool) {
	i := slices.IndexFunc(securityGroups(), func(g securityGroup) bool { return g.id == id })
	if i < 0 {
		return securityGroup{}, false
	}
	return securityGroups()[i], true
}

// keyPairs and instanceProfiles exist in the account.
func keyPairs() []string { return []string{"operator"} }

func instanceProfiles() []string { return []string{"nodes", "other-nodes"} }

// placementGroups exist in the account. The value is the number of partitions, or 0 for a cluster.
func placementGroups() map[string]int { return map[string]int{"racks": 3, "near": 0} }
