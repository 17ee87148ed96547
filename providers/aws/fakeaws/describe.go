package fakeaws

import (
	"path"
	"slices"
	"strings"
)

// lister describes a list of resources.
type lister[T any] struct {
	// ids are the requested IDs, or empty for all resources.
	ids []string
	all []*history[T]
	// name is the name of the list in the answer, and missing is the error code for an ID that does not exist.
	name, missing string
	idOf          func(*T) string
	// filter returns the values of a resource for the name of a filter, and whether the filter exists.
	filter   func(*T, string) ([]string, bool)
	describe func(*T) []node
	// see returns the version of a resource that the list shows. Default: the state without the lag of lists.
	see func(*history[T]) *T
}

// condition is a filter of a list. https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_Filter.html
type condition struct {
	name   string
	values []string
}

func (c *call) conditions() (all []condition) {
	for _, f := range c.params.children("Filter") {
		all = append(all, condition{f.text("Name"), f.list("Value")})
	}
	return all
}

// tagFilter returns the values of a resource for the filters about tags.
func tagFilter(tags map[string]string, name string) ([]string, bool) {
	if key, ok := strings.CutPrefix(name, "tag:"); ok {
		if value, has := tags[key]; has {
			return []string{value}, true
		}
		return nil, true
	}
	if name == "tag-key" {
		var keys []string
		for key := range tags {
			keys = append(keys, key)
		}
		return keys, true
	}
	return nil, false
}

// matches reports whether a resource meets a condition. Values may contain the wildcards * and ?.
func matches(have, want []string) bool {
	return slices.ContainsFunc(have, func(value string) bool {
		return slices.ContainsFunc(want, func(pattern string) bool {
			ok, err := path.Match(strings.ReplaceAll(pattern, "[", `\[`), value)
			return pattern == value || err == nil && ok && !strings.Contains(value, "/")
		})
	})
}

// list answers a call that returns a list.
func list[T any](c *call, l lister[T]) (answer, *failure) {
	conditions, size, token := c.conditions(), c.params.number("MaxResults"), c.params.text("NextToken")
	if f := c.params.check(); f != nil {
		return answer{}, f
	}
	if len(l.ids) > 0 && size > 0 {
		return answer{}, badRequest("InvalidParameterCombination",
			"The parameter for IDs cannot be used with the parameter maxResults")
	}
	if token != "" {
		rest, known := c.aws.pages[token]
		if !known {
			return answer{}, badRequest("InvalidNextToken", "The token is not valid.")
		}
		return c.page(l.name, rest, size)
	}
	if l.see == nil {
		at := c.aws.view(len(l.ids) > 0).at
		l.see = func(h *history[T]) *T { return h.asOf(at) }
	}
	var items []node
	found := map[string]bool{}
	for _, h := range l.all {
		shown := l.see(h)
		if shown == nil || len(l.ids) > 0 && !slices.Contains(l.ids, l.idOf(shown)) {
			continue
		}
		meets := true
		for _, want := range conditions {
			have, known := l.filter(shown, want.name)
			if !known {
				return answer{}, badRequest("InvalidParameterValue", "The filter '%s' is invalid", want.name)
			}
			meets = meets && (c.aws.options.Semantics.FiltersIgnored || matches(have, want.values))
		}
		found[l.idOf(shown)] = true
		if meets {
			items = append(items, node{name: "item", children: l.describe(shown)})
		}
	}
	for _, id := range l.ids {
		if !found[id] {
			return answer{}, badRequest(l.missing, "The ID '%s' does not exist", id)
		}
	}
	c.aws.lists++
	if s := c.aws.options.Semantics; len(items) > 0 && len(l.ids) == 0 {
		if s.ListsTurn && c.aws.lists%2 == 0 {
			slices.Reverse(items)
		}
		if s.ListsRepeat {
			items = append([]node{items[0], items[0]}, items...)
		}
	}
	return c.page(l.name, items, size)
}

// page returns the first page of a list, and stores the rest for the next call.
func (c *call) page(name string, items []node, size int) (answer, *failure) {
	if size <= 0 {
		return c.succeed(parent(name, items...))
	}
	size = min(size, c.aws.options.PageSize)
	if len(items) <= size {
		return c.succeed(parent(name, items...))
	}
	token := c.aws.id("page")
	c.aws.pages[token] = items[size:]
	return c.succeed(parent(name, items[:size]...), leaf("nextToken", token))
}

func (c *call) describeInstances() (answer, *failure) {
	ids := c.params.list("InstanceId")
	v := c.aws.view(len(ids) > 0)
	return list(c, lister[instance]{ids: ids, all: c.aws.instances, name: "reservationSet",
		missing: "InvalidInstanceID.NotFound", idOf: func(i *instance) string { return i.id },
		see: func(h *history[instance]) *instance { return c.aws.see(h, v) },
		filter: func(i *instance, name string) ([]string, bool) {
			switch name {
			case "instance-id":
				return []string{i.id}, true
			case "instance-state-name":
				return []string{i.state}, true
			case "client-token":
				return []string{i.token}, true
			}
			return tagFilter(i.tags, name)
		},
		describe: func(i *instance) []node { return c.aws.reserved(i, v) }})
}

// reserved returns the reservation of an instance. Each call of RunInstances has its own reservation.
func (a *AWS) reserved(i *instance, v view) []node {
	return []node{leaf("reservationId", strings.Replace(i.id, "i-", "r-", 1)), leaf("ownerId", a.options.Account),
		set("instancesSet", a.describe(i, v))}
}

func (c *call) describeInstanceStatus() (answer, *failure) {
	ids := c.params.list("InstanceId")
	all := c.params.flag("IncludeAllInstances", false)
	v := c.aws.view(len(ids) > 0)
	return list(c, lister[instance]{ids: ids, all: c.aws.instances, name: "instanceStatusSet",
		missing: "InvalidInstanceID.NotFound", idOf: func(i *instance) string { return i.id },
		see: func(h *history[instance]) *instance {
			i := c.aws.see(h, v)
			if i != nil && (i.state == terminated || !all && i.state != running) {
				return nil
			}
			return i
		},
		filter: func(i *instance, name string) (values []string, known bool) {
			if name != "event.code" {
				return nil, false
			}
			for _, e := range i.events {
				values = append(values, e.code)
			}
			return values, true
		},
		describe: func(i *instance) []node {
			out := []node{leaf("instanceId", i.id), leaf("availabilityZone", i.zone), stateNode("instanceState", i.state),
				parent("systemStatus", leaf("status", "ok")), parent("instanceStatus", leaf("status", "ok"))}
			var events [][]node
			for _, e := range i.events {
				events = append(events, []node{leaf("instanceEventId", e.id), leaf("code", e.code),
					leaf("description", "A scheduled event."), leaf("notBefore", e.notBefore)})
			}
			return append(out, set("eventsSet", events...))
		}})
}

// still turns values that never change into histories.
func still[T any](a *AWS, values []T) (all []*history[T]) {
	for _, value := range values {
		all = append(all, newHistory(a.now().Add(-a.options.Listed), value))
	}
	return all
}

func (c *call) describeInstanceTypes() (answer, *failure) {
	ids := c.params.list("InstanceType")
	return list(c, lister[instanceType]{ids: ids, all: still(c.aws, instanceTypes()), name: "instanceTypeSet",
		missing: "InvalidInstanceType", idOf: func(t *instanceType) string { return t.name },
		filter: func(*instanceType, string) ([]string, bool) { return nil, false },
		describe: func(t *instanceType) []node {
			out := []node{leaf("instanceType", t.name), leaf("currentGeneration", true), leaf("bareMetal", false),
				leaf("hypervisor", "nitro"), parent("processorInfo", texts("supportedArchitectures", t.arch)),
				parent("vCpuInfo", leaf("defaultVCpus", t.vcpus), leaf("defaultCores", (t.vcpus+1)/2),
					leaf("defaultThreadsPerCore", 2)),
				parent("memoryInfo", leaf("sizeInMiB", t.memoryMiB)), leaf("instanceStorageSupported", false),
				parent("networkInfo", leaf("maximumNetworkInterfaces", t.interfaces),
					leaf("ipv4AddressesPerInterface", t.addresses), leaf("ipv6Supported", true))}
			if t.gpus > 0 {
				out = append(out, parent("gpuInfo", set("gpus", []node{leaf("name", "A10G"), leaf("manufacturer", "NVIDIA"),
					leaf("count", t.gpus)})))
			}
			return out
		}})
}

func (c *call) describeImages() (answer, *failure) {
	ids := c.params.list("ImageId")
	return list(c, lister[image]{ids: ids, all: still(c.aws, images()), name: "imagesSet",
		missing: "InvalidAMIID.NotFound", idOf: func(m *image) string { return m.id },
		filter: func(m *image, name string) ([]string, bool) {
			switch name {
			case "name":
				return []string{m.name}, true
			case "architecture":
				return []string{m.arch}, true
			}
			return nil, false
		},
		describe: func(m *image) []node {
			return []node{leaf("imageId", m.id), leaf("name", m.name), leaf("imageOwnerId", "099720109477"),
				leaf("imageState", "available"), leaf("architecture", m.arch), leaf("imageType", "machine"),
				leaf("isPublic", true), leaf("rootDeviceType", "ebs"), leaf("rootDeviceName", m.rootDevice),
				leaf("virtualizationType", "hvm"), leaf("creationDate", m.created),
				set("blockDeviceMapping", []node{leaf("deviceName", m.rootDevice), parent("ebs",
					leaf("snapshotId", m.snapshot), leaf("volumeSize", m.sizeGiB), leaf("deleteOnTermination", true),
					leaf("volumeType", "gp2"), leaf("encrypted", false))})}
		}})
}

func (c *call) describeSubnets() (answer, *failure) {
	ids := c.params.list("SubnetId")
	return list(c, lister[subnet]{ids: ids, all: still(c.aws, subnets()), name: "subnetSet",
		missing: "InvalidSubnetID.NotFound", idOf: func(s *subnet) string { return s.id },
		filter: func(s *subnet, name string) ([]string, bool) { return tagFilter(s.tags, name) },
		describe: func(s *subnet) []node {
			return []node{leaf("subnetId", s.id), leaf("vpcId", s.vpc), leaf("state", "available"),
				leaf("cidrBlock", "10."+itoa(s.net)+".0.0/16"), leaf("availabilityZone", c.aws.options.Region+s.zone),
				leaf("availableIpAddressCount", 65000), tagSet(s.tags)}
		}})
}

func (c *call) describeSecurityGroups() (answer, *failure) {
	ids := c.params.list("GroupId")
	return list(c, lister[securityGroup]{ids: ids, all: still(c.aws, securityGroups()), name: "securityGroupInfo",
		missing: "InvalidGroup.NotFound", idOf: func(g *securityGroup) string { return g.id },
		filter: func(g *securityGroup, name string) ([]string, bool) {
			if name == "vpc-id" {
				return []string{g.vpc}, true
			}
			return tagFilter(g.tags, name)
		},
		describe: func(g *securityGroup) []node {
			return []node{leaf("groupId", g.id), leaf("groupName", g.name), leaf("groupDescription", g.name),
				leaf("vpcId", g.vpc), leaf("ownerId", c.aws.options.Account), tagSet(g.tags)}
		}})
}
