package fakeaws

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// maxUserData is the limit of the decoded user data.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html
const maxUserData = 16 << 10

// maxTags is the limit of tags for each resource.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html#tag-restrictions
const maxTags = 50

// order is a parsed RunInstances call.
type order struct {
	instance   instance
	typ        instanceType
	image      image
	volumes    []volume
	interfaces []networkInterface
	publicIP   bool
	token      string
	tags       map[string]map[string]string // by resource type
}

// runInstances creates one instance.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html
// https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html
func (c *call) runInstances() (answer, *failure) {
	a := c.aws
	parameters := c.digest()
	o, f := c.order()
	if f != nil {
		return answer{}, f
	}
	if before, used := a.tokens[o.token]; used && o.token != "" {
		if before.parameters != parameters {
			return answer{}, badRequest("IdempotentParameterMismatch", "Arguments on this idempotent request are "+
				"inconsistent with arguments used in previous request(s).")
		}
		if h := a.find(before.instance); h != nil {
			return c.launchedAnswer(h.current())
		}
		return answer{}, badRequest("IdempotentInstanceTerminated", "The instance of the client token is terminated.")
	}
	for _, kind := range []string{"instance", "volume", "network-interface"} {
		if f := c.permit(kind, nil, o.tags[kind]); f != nil {
			return answer{}, f
		}
	}
	for _, kind := range []string{"image", "subnet", "security-group"} {
		if f := c.permit(kind, nil, nil); f != nil {
			return answer{}, f
		}
	}
	if f := c.permitProfile(o.instance.profile.arn); f != nil {
		return answer{}, f
	}
	if f := c.checkOrder(o); f != nil {
		return answer{}, f
	}
	i := a.launch(o)
	if o.token != "" {
		a.tokens[o.token] = launched{instance: i.id, parameters: parameters}
	}
	return c.launchedAnswer(i)
}

// launchedAnswer describes an instance without any delay, because the answer to a change is up to date.
func (c *call) launchedAnswer(i *instance) (answer, *failure) {
	return c.succeed(c.aws.reserved(i, view{at: c.aws.now()})...)
}

// digest returns a hash of all parameters.
func (c *call) digest() string {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(c.params.values)) {
		fmt.Fprintf(h, "%q=%q\n", key, c.params.values[key])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// order parses a call.
func (c *call) order() (*order, *failure) {
	p := c.params
	o := &order{token: p.text("ClientToken"), tags: map[string]map[string]string{}}
	var all []*params
	child := func(name string) *params {
		child := p.child(name)
		if child == nil {
			return newParams(nil)
		}
		all = append(all, child)
		return child
	}
	if p.text("MinCount") != "1" || p.text("MaxCount") != "1" {
		return nil, badRequest("InvalidParameterValue", "The fake launches exactly one instance.")
	}
	i := &o.instance
	i.token, i.typ, i.image = o.token, p.text("InstanceType"), p.text("ImageId")
	i.keyName = p.text("KeyName")
	data, err := base64.StdEncoding.DecodeString(p.text("UserData"))
	if err != nil {
		return nil, badRequest("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
	}
	i.userData = string(data)
	identity := child("IamInstanceProfile")
	if name := identity.text("Name"); name != "" {
		i.profile.arn = c.aws.iamARN("instance-profile/" + name)
	}
	if arn := identity.text("Arn"); arn != "" {
		i.profile.arn = arn
	}
	m := child("MetadataOptions")
	i.metadata = metadataOptions{tokens: m.oneOf("HttpTokens", "optional", "required"),
		endpoint: m.oneOf("HttpEndpoint", "enabled", "disabled"),
		tags:     m.oneOf("InstanceMetadataTags", "enabled", "disabled"), hops: m.number("HttpPutResponseHopLimit")}
	place := child("Placement")
	i.placement = placement{tenancy: place.oneOf("Tenancy", "default", "dedicated", "host"),
		host: place.text("HostId"), group: place.text("GroupName"), partition: place.number("PartitionNumber")}
	cpu := child("CpuOptions")
	i.coreCount, i.threadsPerCore = cpu.number("CoreCount"), cpu.number("ThreadsPerCore")
	i.hostnameType = child("PrivateDnsNameOptions").oneOf("HostnameType", "ip-name", "resource-name")
	market := child("InstanceMarketOptions")
	i.spot = market.oneOf("MarketType", "spot") == "spot"
	_, _, _ = market.text("SpotOptions.MaxPrice"), market.oneOf("SpotOptions.SpotInstanceType", "one-time"),
		market.oneOf("SpotOptions.InstanceInterruptionBehavior", "terminate")
	reservation := child("CapacityReservationSpecification")
	_ = reservation.oneOf("CapacityReservationPreference", "open", "none")
	i.reservation = reservation.text("CapacityReservationTarget.CapacityReservationId")
	_ = reservation.text("CapacityReservationTarget.CapacityReservationResourceGroupArn")
	for _, d := range p.children("BlockDeviceMapping") {
		all = append(all, d)
		o.volumes = append(o.volumes, volume{device: d.text("DeviceName"), size: d.number("Ebs.VolumeSize"),
			kind: d.oneOf("Ebs.VolumeType", volumeTypes()...), iops: d.number("Ebs.Iops"),
			throughput: d.number("Ebs.Throughput"), encrypted: d.flag("Ebs.Encrypted", false), key: d.text("Ebs.KmsKeyId"),
			keep: !d.flag("Ebs.DeleteOnTermination", false)})
	}
	for _, n := range p.children("NetworkInterface") {
		all = append(all, n)
		o.publicIP = n.flag("AssociatePublicIpAddress", false) || o.publicIP
		o.interfaces = append(o.interfaces, networkInterface{index: n.number("DeviceIndex"), subnet: n.text("SubnetId"),
			groups: n.list("SecurityGroupId"), sourceDestCheck: true,
			keep: !n.flag("DeleteOnTermination", n.number("DeviceIndex") == 0),
			ipv6: make([]string, n.number("Ipv6AddressCount")), prefixes4: make([]string, n.number("Ipv4PrefixCount")),
			prefixes6: make([]string, n.number("Ipv6PrefixCount"))})
	}
	for _, spec := range p.children("TagSpecification") {
		o.tags[spec.text("ResourceType")] = spec.tags("Tag")
	}
	return o, p.check(all...)
}

// checkOrder refuses a call for the same reasons as EC2.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
func (c *call) checkOrder(o *order) *failure {
	var known bool
	i := &o.instance
	if o.image, known = imageWith(i.image); !known {
		return badRequest("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", i.image)
	}
	if o.typ, known = typeNamed(i.typ); !known {
		return badRequest("InvalidParameterValue", "Invalid value '%s' for InstanceType.", i.typ)
	}
	if o.typ.arch != o.image.arch {
		return badRequest("InvalidParameterValue",
			"The architecture '%s' of the specified instance type does not match the "+
				"architecture '%s' of the specified AMI. Specify an instance type and an AMI that have matching architectures, "+
				"and try again.", o.typ.arch, o.image.arch)
	}
	if len(i.userData) > maxUserData {
		return badRequest("InvalidParameterValue", "User data is limited to 16384 bytes")
	}
	if i.keyName != "" && !slices.Contains(keyPairs(), i.keyName) {
		return badRequest("InvalidKeyPair.NotFound", "The key pair '%s' does not exist", i.keyName)
	}
	if i.profile.arn != "" && !slices.ContainsFunc(instanceProfiles(), func(name string) bool {
		return i.profile.arn == c.aws.iamARN("instance-profile/"+name)
	}) {
		return badRequest("InvalidParameterValue",
			"Value (%s) for parameter iamInstanceProfile.arn is invalid. Invalid IAM "+
				"Instance Profile ARN", i.profile.arn)
	}
	if partitions, exists := placementGroups()[i.placement.group]; i.placement.group != "" && !exists {
		return badRequest("InvalidPlacementGroup.Unknown", "The Placement Group '%s' is unknown.", i.placement.group)
	} else if i.placement.partition > partitions {
		return badRequest("InvalidParameterValue", "The partition %d does not exist.", i.placement.partition)
	}
	if i.spot && !o.typ.spot {
		return badRequest("Unsupported", "The instance type %s is not available as a Spot instance.", o.typ.name)
	}
	if i.spot && i.placement.tenancy == "host" {
		return badRequest("InvalidParameterCombination", "Spot instances cannot have the tenancy host.")
	}
	if i.placement.host != "" && i.placement.tenancy != "host" {
		return badRequest("InvalidParameterCombination", "The host requires the tenancy host.")
	}
	if f := c.checkInterfaces(o); f != nil {
		return f
	}
	for kind, tags := range o.tags {
		if f := checkTags(kind, tags, nil); f != nil {
			return f
		}
	}
	return c.checkQuota(o)
}

func (c *call) checkInterfaces(o *order) *failure {
	if len(o.interfaces) == 0 {
		return badRequest("MissingParameter", "The fake has no default VPC: the request needs a network interface.")
	}
	if len(o.interfaces) > o.typ.interfaces {
		return badRequest("AttachmentLimitExceeded", "Interface count %d exceeds the limit for %s", len(o.interfaces),
			o.typ.name)
	}
	if o.publicIP && len(o.interfaces) > 1 {
		return badRequest("InvalidParameterCombination",
			"The associatePublicIPAddress parameter cannot be specified when "+
				"launching with multiple network interfaces.")
	}
	first, zone := "", ""
	for _, n := range o.interfaces {
		s, known := subnetWith(n.subnet)
		switch {
		case !known:
			return badRequest("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", n.subnet)
		case zone != "" && s.zone != zone:
			return badRequest("InvalidParameterValue", "The subnets %s and %s are in different zones.", first, n.subnet)
		case !slices.Contains(o.typ.zones, s.zone):
			return badRequest("Unsupported", "Your requested instance type (%s) is not supported in your requested "+
				"Availability Zone (%s%s).", o.typ.name, c.aws.options.Region, s.zone)
		case len(n.ipv6)+len(n.prefixes6) > 0 && !s.ipv6:
			return badRequest("InvalidParameterValue", "The subnet %s has no IPv6 addresses.", n.subnet)
		}
		first, zone = n.subnet, s.zone
		if f := checkGroups(n.groups, n.subnet); f != nil {
			return f
		}
	}
	return nil
}

func (c *call) checkQuota(o *order) *failure {
	if c.aws.vcpusInUse()+o.typ.vcpus <= c.aws.options.VCPUQuota {
		return nil
	}
	if o.instance.spot {
		return badRequest("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
	}
	return badRequest("VcpuLimitExceeded",
		"You have requested more vCPU capacity than your current vCPU limit of %d allows "+
			"for the instance bucket that the specified instance type belongs to.", c.aws.options.VCPUQuota)
}

// checkTags checks the tags of a resource, together with the tags that it has before the call.
func checkTags(kind string, tags, before map[string]string) *failure {
	if !slices.Contains([]string{"instance", "volume", "network-interface", "spot-instances-request"}, kind) {
		return badRequest("InvalidParameterValue", "'%s' is not a valid taggable resource type.", kind)
	}
	for key, value := range tags {
		switch {
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return badRequest("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
		case key == "" || len([]rune(key)) > 128:
			return badRequest("InvalidParameterValue", "Tag key exceeds the maximum length of 128 characters")
		case len([]rune(value)) > 256:
			return badRequest("InvalidParameterValue", "Tag value exceeds the maximum length of 256 characters")
		}
	}
	if len(withTags(before, tags)) > maxTags {
		return badRequest("TagLimitExceeded", "The maximum number of Tags for a resource has been reached.")
	}
	return nil
}

// launch creates the instance with its volumes and interfaces.
func (a *AWS) launch(o *order) *instance {
	now := a.now()
	i := o.instance
	i.id, i.launch, i.state, i.tags = a.id("i"), now, pending, o.tags["instance"]
	s, _ := subnetWith(o.interfaces[0].subnet)
	i.subnet, i.vpc, i.zone = s.id, s.vpc, a.options.Region+s.zone
	i.setDefaults(o.typ)
	if i.profile.arn != "" {
		i.profile.id, i.profile.association = a.id("AIPA"), a.id("iip-assoc")
	}
	for index, n := range o.interfaces {
		a.nextID++
		net, _ := subnetWith(n.subnet)
		n.id, n.vpc, n.zone, n.created, n.tags, n.instance = a.id("eni"), net.vpc, a.options.Region+net.zone, now,
			o.tags["network-interface"], i.id
		n.address = fmt.Sprintf("10.%d.%d.%d", net.net, a.nextID>>8&0xff, a.nextID&0xff)
		for k := range n.ipv6 {
			n.ipv6[k] = fmt.Sprintf("2001:db8:%d::%x:%x", net.net, a.nextID, k+1)
		}
		for k := range n.prefixes4 {
			n.prefixes4[k] = fmt.Sprintf("10.%d.%d.%d/28", net.net, 128+a.nextID>>4&0x7f, a.nextID&0xf<<4)
		}
		for k := range n.prefixes6 {
			n.prefixes6[k] = fmt.Sprintf("2001:db8:%d:%x:%x::/80", net.net, a.nextID, k+1)
		}
		if index == 0 {
			i.address = n.address
			if o.publicIP {
				i.publicAddress = fmt.Sprintf("203.0.%d.%d", a.nextID>>8&0xff, a.nextID&0xff)
			}
		}
		a.interfaces = append(a.interfaces, newHistory(now, n))
	}
	a.addVolumes(o, &i, now)
	h := newHistory(now, i)
	a.instances = append(a.instances, h)
	switch why := a.failureOf(o); {
	case why.code != "":
		a.after(a.options.BootDuration, func(at time.Time) {
			if current := h.current(); current != nil && current.state == pending {
				h.change(at, func(i *instance) { i.reason = why })
				a.finish(i.id, at)
			}
		})
	default:
		a.after(a.options.BootDuration, func(at time.Time) { a.setState(i.id, at, running, pending) })
	}
	created := *h.current()
	if created.state == running {
		created.state = pending // The answer shows the state at the beginning.
	}
	return &created
}

func (i *instance) setDefaults(t instanceType) {
	if i.metadata.tokens == "" {
		i.metadata.tokens = "optional"
	}
	if i.metadata.endpoint == "" {
		i.metadata.endpoint = "enabled"
	}
	if i.metadata.tags == "" {
		i.metadata.tags = "disabled"
	}
	if i.metadata.hops == 0 {
		i.metadata.hops = 1
	}
	if i.placement.tenancy == "" {
		i.placement.tenancy = "default"
	}
	if i.hostnameType == "" {
		i.hostnameType = "ip-name"
	}
	if i.coreCount == 0 {
		i.coreCount, i.threadsPerCore = (t.vcpus+1)/2, 2
	}
}

// addVolumes creates the root volume of the image and the other volumes.
func (a *AWS) addVolumes(o *order, i *instance, now time.Time) {
	root := volume{device: o.image.rootDevice, size: o.image.sizeGiB, kind: "gp2", snapshot: o.image.snapshot}
	all := []volume{root}
	for _, v := range o.volumes {
		if v.kind == "" {
			v.kind = "gp2"
		}
		if v.device != root.device {
			all = append(all, v)
			continue
		}
		v.snapshot = root.snapshot
		if v.size == 0 {
			v.size = root.size
		}
		all[0] = v
	}
	for _, v := range all {
		v.id, v.zone, v.created, v.tags, v.instance = a.id("vol"), i.zone, now, o.tags["volume"], i.id
		if v.kind == "gp3" && v.iops == 0 {
			v.iops = 3000
		}
		if v.kind == "gp3" && v.throughput == 0 {
			v.throughput = 125
		}
		a.volumes = append(a.volumes, newHistory(now, v))
	}
}

// failureOf returns the reason for which an accepted instance fails before it runs.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/troubleshooting-launch.html
func (a *AWS) failureOf(o *order) reason {
	if code := a.options.Semantics.GivesUp; code != "" {
		return reason{code, code + ": the launch failed"}
	}
	for _, v := range o.volumes {
		if v.key != "" && slices.Contains(a.options.LockedKeys, v.key) {
			return reason{"Client.InternalError", "Client.InternalError: Client error on launch"}
		}
	}
	return reason{}
}
