package fakeaws

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// instance is one version of an instance. Its maps and slices never change.
type instance struct {
	id, token string
	launch    time.Time
	state     string
	reason    reason
	// terminated is when the instance was terminated.
	terminatedAt time.Time

	typ, image, zone, subnet, vpc string
	keyName, userData             string
	hostnameType                  string
	tags                          map[string]string
	address, publicAddress        string
	profile                       profile
	metadata                      metadataOptions
	placement                     placement
	spot                          bool
	coreCount, threadsPerCore     int
	reservation                   string
	events                        []scheduledEvent
	Attributes
}

// Attributes are the attributes of an instance that another user of the account can change.
type Attributes struct {
	// DisableAPITermination and DisableAPIStop protect the instance.
	DisableAPITermination, DisableAPIStop bool
}

// reason is the state reason of an instance, such as "Server.InsufficientInstanceCapacity".
type reason struct{ code, message string }

type profile struct{ arn, id, association string }

type metadataOptions struct {
	tokens, endpoint, tags string
	hops                   int
}

type placement struct {
	tenancy, host, group string
	partition            int
}

// scheduledEvent is a scheduled event of DescribeInstanceStatus.
type scheduledEvent struct {
	id, code  string
	notBefore time.Time
}

// stateCode returns the numeric code of a state.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceState.html
func stateCode(state string) int {
	return map[string]int{pending: 0, running: 16, shuttingDown: 32, terminated: 48, stopping: 64, stopped: 80}[state]
}

func stateNode(name, state string) node {
	return parent(name, leaf("code", stateCode(state)), leaf("name", state))
}

// view is the time as of which a read shows instances.
type view struct {
	at       time.Time
	flickers bool
	noTags   time.Duration
}

// see returns the state of an instance in a view, or nil.
func (a *AWS) see(h *history[instance], v view) *instance {
	shown := h.asOf(v.at)
	if shown == nil {
		return nil
	}
	if v.flickers && shown.state != terminated {
		if before := h.previous(); before != nil {
			earlier := *shown
			earlier.state = before.state
			shown = &earlier
		}
	}
	if v.noTags > 0 && a.now().Sub(shown.launch) < v.noTags {
		bare := *shown
		bare.tags = nil
		shown = &bare
	}
	return shown
}

// view returns the view of the next read.
func (a *AWS) view(byID bool) view {
	s := a.options.Semantics
	lag := s.ListLag
	if byID {
		lag = s.ReadLag
	}
	a.reads++
	return view{at: a.now().Add(-lag), flickers: s.StateFlickers && a.reads%2 == 0, noTags: s.TagLag}
}

// hostname returns the private DNS name.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/hostname-types.html
func (i *instance) hostname(region string) string {
	domain := region + ".compute.internal"
	if region == "us-east-1" {
		domain = "ec2.internal"
	}
	if i.hostnameType == "resource-name" {
		return i.id + "." + domain
	}
	return "ip-" + strings.ReplaceAll(i.address, ".", "-") + "." + domain
}

// describe returns the members of an instance in DescribeInstances and RunInstances.
func (a *AWS) describe(i *instance, v view) []node {
	out := []node{
		leaf("instanceId", i.id), leaf("imageId", i.image), stateNode("instanceState", i.state),
		leaf("amiLaunchIndex", 0), leaf("clientToken", i.token), leaf("instanceType", i.typ), leaf("launchTime", i.launch),
		parent("placement", i.placementNodes()...), parent("monitoring", leaf("state", "disabled")),
		leaf("architecture", a.archOf(i)), leaf("hypervisor", "xen"), leaf("virtualizationType", "hvm"),
		leaf("rootDeviceType", "ebs"), leaf("ebsOptimized", false), leaf("enaSupport", true),
		parent("hibernationOptions", leaf("configured", false)),
		tagSet(i.tags),
	}
	if m, known := imageWith(i.image); known {
		out = append(out, leaf("rootDeviceName", m.rootDevice))
	}
	if i.keyName != "" {
		out = append(out, leaf("keyName", i.keyName))
	}
	if i.spot {
		out = append(out, leaf("instanceLifecycle", "spot"))
	}
	if i.reason.code != "" {
		out = append(out, parent("stateReason", leaf("code", i.reason.code), leaf("message", i.reason.message)),
			leaf("reason", i.reason.message))
	}
	if i.state == terminated {
		return out
	}
	out = append(out, leaf("subnetId", i.subnet), leaf("vpcId", i.vpc), leaf("privateIpAddress", i.address),
		leaf("privateDnsName", i.hostname(a.options.Region)),
		parent("privateDnsNameOptions", leaf("hostnameType", i.hostnameType),
			leaf("enableResourceNameDnsARecord", false), leaf("enableResourceNameDnsAAAARecord", false)),
		parent("metadataOptions", leaf("state", "applied"), leaf("httpTokens", i.metadata.tokens),
			leaf("httpPutResponseHopLimit", i.metadata.hops), leaf("httpEndpoint", i.metadata.endpoint),
			leaf("instanceMetadataTags", i.metadata.tags)),
		parent("cpuOptions", leaf("coreCount", i.coreCount), leaf("threadsPerCore", i.threadsPerCore)))
	if i.publicAddress != "" && i.state != stopped && i.state != stopping {
		out = append(out, leaf("ipAddress", i.publicAddress), leaf("dnsName", "ec2-"+
			strings.ReplaceAll(i.publicAddress, ".", "-")+"."+a.options.Region+".compute.amazonaws.com"))
	}
	if i.profile.arn != "" {
		out = append(out, parent("iamInstanceProfile", leaf("arn", i.profile.arn), leaf("id", i.profile.id)))
	}
	if i.reservation != "" {
		out = append(out, leaf("capacityReservationId", i.reservation))
	}
	return append(out, a.describeParts(i, v)...)
}

func (i *instance) placementNodes() []node {
	out := []node{leaf("availabilityZone", i.zone), leaf("tenancy", i.placement.tenancy),
		leaf("groupName", i.placement.group)}
	if i.placement.host != "" {
		out = append(out, leaf("hostId", i.placement.host))
	}
	if i.placement.partition > 0 {
		out = append(out, leaf("partitionNumber", i.placement.partition))
	}
	return out
}

// describeParts returns the members about volumes and interfaces.
func (a *AWS) describeParts(i *instance, v view) (out []node) {
	var devices, interfaces [][]node
	for _, h := range a.volumes {
		if d := h.asOf(v.at); d != nil && d.instance == i.id {
			devices = append(devices, []node{leaf("deviceName", d.device), parent("ebs", leaf("volumeId", d.id),
				leaf("status", "attached"), leaf("attachTime", d.created), leaf("deleteOnTermination", !d.keep))})
		}
	}
	check := true
	var groups [][]node
	for _, h := range a.interfaces {
		n := h.asOf(v.at)
		if n == nil || n.instance != i.id {
			continue
		}
		if n.index == 0 {
			check, groups = n.sourceDestCheck, groupNodes(n.groups)
		}
		interfaces = append(interfaces, n.inInstance())
	}
	return append(out, set("blockDeviceMapping", devices...), set("networkInterfaceSet", interfaces...),
		set("groupSet", groups...), leaf("sourceDestCheck", check))
}

func groupNodes(ids []string) (all [][]node) {
	for _, id := range ids {
		g, _ := groupWith(id)
		all = append(all, []node{leaf("groupId", id), leaf("groupName", g.name)})
	}
	return all
}

func (a *AWS) archOf(i *instance) string {
	t, _ := typeNamed(i.typ)
	return t.arch
}

// vcpusInUse returns the virtual CPUs that count against the quota.
func (a *AWS) vcpusInUse() (sum int) {
	for _, h := range a.instances {
		i := h.current()
		if i == nil || i.state == stopped {
			continue
		}
		if i.state == terminated && !a.now().Before(i.terminatedAt.Add(a.options.Semantics.QuotaLag)) {
			continue
		}
		t, _ := typeNamed(i.typ)
		sum += t.vcpus
	}
	return sum
}

// setState changes the state of an instance if it has one of the given states.
func (a *AWS) setState(id string, at time.Time, to string, from ...string) {
	if h := a.find(id); h != nil && slices.Contains(from, h.current().state) {
		h.change(at, func(i *instance) { i.state = to })
	}
}

// terminate starts the termination of an instance.
func (a *AWS) terminate(id string, why reason) {
	h := a.find(id)
	if h == nil || h.current().state == shuttingDown || h.current().state == terminated {
		return
	}
	h.change(a.now(), func(i *instance) { i.state, i.reason = shuttingDown, why })
	a.after(a.options.TerminateDuration, func(at time.Time) { a.finish(id, at) })
}

// finish completes the termination of an instance. Its volumes and interfaces go with it, unless they are kept.
func (a *AWS) finish(id string, at time.Time) {
	h := a.find(id)
	if h == nil || h.current().state == terminated {
		return
	}
	h.change(at, func(i *instance) { i.state, i.terminatedAt = terminated, at })
	busy := at.Add(a.options.Semantics.PartsInUse)
	for _, v := range a.volumes {
		if d := v.current(); d == nil || d.instance != id {
			continue
		} else if d.keep {
			v.change(at, func(v *volume) { v.instance, v.device, v.busy = "", "", busy })
		} else {
			v.remove(at)
		}
	}
	for _, n := range a.interfaces {
		if d := n.current(); d == nil || d.instance != id {
			continue
		} else if d.keep {
			n.change(at, func(n *networkInterface) { n.instance, n.busy = "", busy })
		} else {
			n.remove(at)
		}
	}
	a.schedule(at.Add(a.options.Listed), func() { h.remove(at.Add(a.options.Listed)) })
}

func withTags(before, more map[string]string) map[string]string {
	out := maps.Clone(before)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, more)
	return out
}

func itoa(n int) string { return strconv.Itoa(n) }

// iamARN returns the ARN of a resource of IAM.
func (a *AWS) iamARN(resource string) string {
	return fmt.Sprintf("arn:aws:iam::%s:%s", a.options.Account, resource)
}
