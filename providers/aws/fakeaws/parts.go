package fakeaws

import (
	"slices"
	"strings"
	"time"
)

// volume is one version of a volume.
type volume struct {
	id, zone, kind, key    string
	size, iops, throughput int
	encrypted              bool
	snapshot               string
	created                time.Time
	tags                   map[string]string
	// instance and device are empty while the volume is not attached.
	instance, device string
	// keep is true if the volume outlives its instance.
	keep bool
	// busy is the time until which the volume cannot be deleted. modified is the end of the last modification.
	busy, modified time.Time
}

// networkInterface is one version of a network interface.
type networkInterface struct {
	id, subnet, vpc, zone      string
	address                    string
	ipv6, prefixes4, prefixes6 []string
	groups                     []string
	sourceDestCheck            bool
	created                    time.Time
	tags                       map[string]string
	// instance is empty while the interface is not attached.
	instance string
	index    int
	keep     bool
	busy     time.Time
}

// inInstance returns the members of an interface in DescribeInstances.
func (n *networkInterface) inInstance() []node {
	out := []node{leaf("networkInterfaceId", n.id), leaf("subnetId", n.subnet), leaf("vpcId", n.vpc),
		leaf("status", "in-use"), leaf("privateIpAddress", n.address), leaf("sourceDestCheck", n.sourceDestCheck),
		leaf("interfaceType", "interface"), set("groupSet", groupNodes(n.groups)...),
		parent("attachment", leaf("attachmentId", strings.Replace(n.id, "eni-", "eni-attach-", 1)),
			leaf("deviceIndex", n.index), leaf("status", "attached"), leaf("attachTime", n.created),
			leaf("deleteOnTermination", !n.keep)),
		set("privateIpAddressesSet", []node{leaf("primary", true), leaf("privateIpAddress", n.address)})}
	return append(out, n.moreAddresses()...)
}

func (n *networkInterface) moreAddresses() []node {
	var six, p4, p6 [][]node
	for _, address := range n.ipv6 {
		six = append(six, []node{leaf("ipv6Address", address)})
	}
	for _, prefix := range n.prefixes4 {
		p4 = append(p4, []node{leaf("ipv4Prefix", prefix)})
	}
	for _, prefix := range n.prefixes6 {
		p6 = append(p6, []node{leaf("ipv6Prefix", prefix)})
	}
	return []node{set("ipv6AddressesSet", six...), set("ipv4PrefixSet", p4...), set("ipv6PrefixSet", p6...)}
}

func (c *call) describeVolumes() (answer, *failure) {
	ids := c.params.list("VolumeId")
	return list(c, lister[volume]{ids: ids, all: c.aws.volumes, name: "volumeSet", missing: "InvalidVolume.NotFound",
		idOf: func(v *volume) string { return v.id },
		filter: func(v *volume, name string) ([]string, bool) {
			switch name {
			case "status":
				return []string{v.status()}, true
			case "attachment.instance-id":
				return []string{v.instance}, true
			}
			return tagFilter(v.tags, name)
		},
		describe: (*volume).describe})
}

func (v *volume) status() string {
	if v.instance != "" {
		return "in-use"
	}
	return "available"
}

func (v *volume) describe() []node {
	out := []node{leaf("volumeId", v.id), leaf("availabilityZone", v.zone), leaf("createTime", v.created),
		leaf("size", v.size), leaf("volumeType", v.kind), leaf("encrypted", v.encrypted), leaf("status", v.status()),
		leaf("snapshotId", v.snapshot), leaf("multiAttachEnabled", false), tagSet(v.tags)}
	if v.iops > 0 {
		out = append(out, leaf("iops", v.iops))
	}
	if v.throughput > 0 {
		out = append(out, leaf("throughput", v.throughput))
	}
	if v.key != "" {
		out = append(out, leaf("kmsKeyId", v.key))
	}
	if v.instance == "" {
		return append(out, set("attachmentSet"))
	}
	return append(out, set("attachmentSet", []node{leaf("volumeId", v.id), leaf("instanceId", v.instance),
		leaf("device", v.device), leaf("status", "attached"), leaf("attachTime", v.created),
		leaf("deleteOnTermination", !v.keep)}))
}

func (c *call) volume(id string) (*history[volume], *failure) {
	for _, h := range c.aws.volumes {
		if v := h.current(); v != nil && v.id == id {
			return h, nil
		}
	}
	return nil, badRequest("InvalidVolume.NotFound", "The volume '%s' does not exist.", id)
}

func (c *call) deleteVolume() (answer, *failure) {
	id := c.params.text("VolumeId")
	if f := c.params.check(); f != nil {
		return answer{}, f
	}
	h, f := c.volume(id)
	if f != nil {
		return answer{}, f
	}
	v := h.current()
	if f := c.permit("volume", v.tags, nil); f != nil {
		return answer{}, f
	}
	if v.instance != "" || c.aws.now().Before(v.busy) {
		return answer{}, badRequest("VolumeInUse", "Volume %s is currently attached to an instance.", id)
	}
	h.remove(c.aws.now())
	return c.succeed(leaf("return", true))
}

// modifyVolume changes a volume. https://docs.aws.amazon.com/ebs/latest/userguide/modify-volume-requirements.html
func (c *call) modifyVolume() (answer, *failure) {
	p := c.params
	id, size, kind, iops, throughput := p.text("VolumeId"), p.number("Size"), p.oneOf("VolumeType", volumeTypes()...),
		p.number("Iops"), p.number("Throughput")
	if f := p.check(); f != nil {
		return answer{}, f
	}
	h, f := c.volume(id)
	if f != nil {
		return answer{}, f
	}
	before := *h.current()
	if f := c.permit("volume", before.tags, nil); f != nil {
		return answer{}, f
	}
	now := c.aws.now()
	switch {
	case size > 0 && size < before.size:
		return answer{}, badRequest("InvalidParameterValue", "New size cannot be smaller than existing size")
	case !before.modified.IsZero() && now.Sub(before.modified) < 6*time.Hour:
		return answer{}, badRequest("VolumeModificationRateExceeded",
			"You've reached the maximum modification rate per volume limit. Wait at least 6 hours between modifications per EBS volume.")
	}
	h.change(now, func(v *volume) {
		v.modified = now
		if size > 0 {
			v.size = size
		}
		if kind != "" {
			v.kind = kind
		}
		if iops > 0 {
			v.iops = iops
		}
		if throughput > 0 {
			v.throughput = throughput
		}
	})
	after := h.current()
	return c.succeed(parent("volumeModification", leaf("volumeId", id), leaf("modificationState", "optimizing"),
		leaf("originalSize", before.size), leaf("targetSize", after.size), leaf("originalVolumeType", before.kind),
		leaf("targetVolumeType", after.kind), leaf("progress", 0), leaf("startTime", now)))
}

func volumeTypes() []string { return []string{"standard", "gp2", "gp3", "io1", "io2", "st1", "sc1"} }

func (c *call) describeNetworkInterfaces() (answer, *failure) {
	ids := c.params.list("NetworkInterfaceId")
	return list(c, lister[networkInterface]{ids: ids, all: c.aws.interfaces, name: "networkInterfaceSet",
		missing: "InvalidNetworkInterfaceID.NotFound", idOf: func(n *networkInterface) string { return n.id },
		filter: func(n *networkInterface, name string) ([]string, bool) {
			if name == "status" {
				return []string{n.status()}, true
			}
			return tagFilter(n.tags, name)
		},
		describe: (*networkInterface).describe})
}

func (n *networkInterface) status() string {
	if n.instance != "" {
		return "in-use"
	}
	return "available"
}

func (n *networkInterface) describe() []node {
	out := []node{leaf("networkInterfaceId", n.id), leaf("subnetId", n.subnet), leaf("vpcId", n.vpc),
		leaf("availabilityZone", n.zone), leaf("status", n.status()), leaf("privateIpAddress", n.address),
		leaf("sourceDestCheck", n.sourceDestCheck), leaf("interfaceType", "interface"),
		set("groupSet", groupNodes(n.groups)...), tagSet(n.tags)}
	if n.instance != "" {
		out = append(out, parent("attachment", leaf("attachmentId", strings.Replace(n.id, "eni-", "eni-attach-", 1)),
			leaf("instanceId", n.instance), leaf("deviceIndex", n.index), leaf("status", "attached"),
			leaf("deleteOnTermination", !n.keep)))
	}
	return append(out, n.moreAddresses()...)
}

func (c *call) networkInterface(id string) (*history[networkInterface], *failure) {
	for _, h := range c.aws.interfaces {
		if n := h.current(); n != nil && n.id == id {
			return h, nil
		}
	}
	return nil, badRequest("InvalidNetworkInterfaceID.NotFound", "The networkInterface ID '%s' does not exist", id)
}

func (c *call) deleteNetworkInterface() (answer, *failure) {
	id := c.params.text("NetworkInterfaceId")
	if f := c.params.check(); f != nil {
		return answer{}, f
	}
	h, f := c.networkInterface(id)
	if f != nil {
		return answer{}, f
	}
	n := h.current()
	if f := c.permit("network-interface", n.tags, nil); f != nil {
		return answer{}, f
	}
	if n.instance != "" || c.aws.now().Before(n.busy) {
		return answer{}, badRequest("InvalidParameterValue", "Network interface '%s' is currently in use.", id)
	}
	h.remove(c.aws.now())
	return c.succeed(leaf("return", true))
}

func (c *call) modifyNetworkInterfaceAttribute() (answer, *failure) {
	p := c.params
	id, groups := p.text("NetworkInterfaceId"), p.list("SecurityGroupId")
	check, hasCheck := p.flag("SourceDestCheck.Value", true), p.has("SourceDestCheck.Value")
	if f := p.check(); f != nil {
		return answer{}, f
	}
	h, f := c.networkInterface(id)
	if f != nil {
		return answer{}, f
	}
	if f := c.permit("network-interface", h.current().tags, nil); f != nil {
		return answer{}, f
	}
	if f := checkGroups(groups, h.current().subnet); f != nil {
		return answer{}, f
	}
	h.change(c.aws.now(), func(n *networkInterface) {
		if len(groups) > 0 {
			n.groups = slices.Clone(groups)
		}
		if hasCheck {
			n.sourceDestCheck = check
		}
	})
	return c.succeed(leaf("return", true))
}

// checkGroups returns an error if a group does not exist or belongs to another VPC than the subnet.
func checkGroups(groups []string, subnetID string) *failure {
	s, _ := subnetWith(subnetID)
	for _, id := range groups {
		g, known := groupWith(id)
		if !known {
			return badRequest("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
		}
		if g.vpc != s.vpc {
			return badRequest("InvalidParameter", "Security group %s and subnet %s belong to different networks.", id,
				subnetID)
		}
	}
	return nil
}
