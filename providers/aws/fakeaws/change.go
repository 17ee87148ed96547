package fakeaws

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// terminateInstances terminates instances. Terminated instances stay terminated.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_TerminateInstances.html
func (c *call) terminateInstances() (answer, *failure) {
	return c.changeStates(func(i *instance) *failure {
		attribute := ""
		switch {
		case i.state == shuttingDown || i.state == terminated:
			return nil
		case i.DisableAPITermination:
			attribute = "disableApiTermination"
		case i.DisableAPIStop:
			attribute = "disableApiStop"
		}
		if attribute != "" {
			return badRequest("OperationNotPermitted", "The instance '%s' may not be terminated. Modify its '%s' instance "+
				"attribute and try again.", i.id, attribute)
		}
		return nil
	}, func(i *instance) {
		c.aws.terminate(i.id, reason{"Client.UserInitiatedShutdown",
			"Client.UserInitiatedShutdown: User initiated shutdown"})
	})
}

// stopInstances stops instances. https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StopInstances.html
func (c *call) stopInstances() (answer, *failure) {
	force := c.params.flag("Force", false)
	return c.changeStates(func(i *instance) *failure {
		switch {
		case i.state == stopping || i.state == stopped:
			return nil
		case i.state != running:
			return badRequest("IncorrectInstanceState",
				"The instance '%s' is not in a state from which it can be stopped.", i.id)
		case i.spot:
			return badRequest("UnsupportedOperation",
				"You can't stop the Spot Instance '%s' because it is associated with a "+
					"one-time Spot Instance request. You can only stop Spot Instances associated with persistent Spot Instance "+
					"requests.", i.id)
		case i.DisableAPIStop:
			return badRequest("OperationNotPermitted", "The instance '%s' may not be stopped. Modify its 'disableApiStop' "+
				"instance attribute and try again.", i.id)
		}
		return nil
	}, func(i *instance) {
		ignored := !force && c.aws.options.Semantics.GuestsIgnoreStop
		c.aws.setState(i.id, c.aws.now(), stopping, running)
		if !ignored {
			c.aws.after(c.aws.options.StopDuration, func(at time.Time) { c.aws.setState(i.id, at, stopped, stopping) })
		}
	})
}

// startInstances starts instances. https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StartInstances.html
func (c *call) startInstances() (answer, *failure) {
	return c.changeStates(func(i *instance) *failure {
		switch i.state {
		case pending, running, stopped:
			return nil
		}
		return badRequest("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be started.",
			i.id)
	}, func(i *instance) {
		if i.state != stopped {
			return
		}
		c.aws.setState(i.id, c.aws.now(), pending, stopped)
		c.aws.after(c.aws.options.BootDuration, func(at time.Time) { c.aws.setState(i.id, at, running, pending) })
	})
}

// changeStates checks all instances of a call, and then changes all of them.
func (c *call) changeStates(check func(*instance) *failure, do func(*instance)) (answer, *failure) {
	ids := c.params.list("InstanceId")
	if f := c.params.check(); f != nil {
		return answer{}, f
	}
	if len(ids) == 0 {
		return answer{}, badRequest("MissingParameter", "The request must contain the parameter InstanceId")
	}
	var all []*history[instance]
	for _, id := range ids {
		h, f := c.instance(id)
		if f != nil {
			return answer{}, f
		}
		if f := check(h.current()); f != nil {
			return answer{}, f
		}
		all = append(all, h)
	}
	var items [][]node
	for _, h := range all {
		before := h.current()
		do(before)
		items = append(items, []node{leaf("instanceId", before.id), stateNode("currentState", h.current().state),
			stateNode("previousState", before.state)})
	}
	return c.succeed(set("instancesSet", items...))
}

// instance finds the instance that a call changes, and checks the permission to change it.
func (c *call) instance(id string) (*history[instance], *failure) {
	if !strings.HasPrefix(id, "i-") {
		return nil, badRequest("InvalidInstanceID.Malformed", "Invalid id: \"%s\"", id)
	}
	h := c.aws.find(id)
	if h == nil {
		return nil, badRequest("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
	}
	return h, c.permit("instance", h.current().tags, nil)
}

// createTags sets tags on instances, volumes and network interfaces.
func (c *call) createTags() (answer, *failure) {
	return c.editTags(withTags)
}

func (c *call) deleteTags() (answer, *failure) {
	return c.editTags(func(before, tags map[string]string) map[string]string {
		after := maps.Clone(before)
		maps.DeleteFunc(after, func(key, value string) bool {
			want, listed := tags[key]
			return listed && (want == "" || want == value)
		})
		return after
	})
}

func (c *call) editTags(edit func(before, tags map[string]string) map[string]string) (answer, *failure) {
	ids, tags := c.params.list("ResourceId"), c.params.tags("Tag")
	if f := c.params.check(); f != nil {
		return answer{}, f
	}
	// All changes are checked first, because EC2 tags all resources or none.
	var apply []func()
	now := c.aws.now()
	for _, id := range ids {
		prefix, _, _ := strings.Cut(id, "-")
		var kind string
		var before map[string]string
		switch prefix {
		case "i":
			h := c.aws.find(id)
			if h == nil || h.current().state == terminated {
				return answer{}, badRequest("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
			}
			kind, before = "instance", h.current().tags
			apply = append(apply, func() { h.change(now, func(i *instance) { i.tags = edit(i.tags, tags) }) })
		case "vol":
			h, f := c.volume(id)
			if f != nil {
				return answer{}, f
			}
			kind, before = "volume", h.current().tags
			apply = append(apply, func() { h.change(now, func(v *volume) { v.tags = edit(v.tags, tags) }) })
		case "eni":
			h, f := c.networkInterface(id)
			if f != nil {
				return answer{}, f
			}
			kind, before = "network-interface", h.current().tags
			apply = append(apply, func() { h.change(now, func(n *networkInterface) { n.tags = edit(n.tags, tags) }) })
		default:
			return answer{}, badRequest("InvalidID", "The ID '%s' is not valid", id)
		}
		if f := c.permit(kind, before, tags); f != nil {
			return answer{}, f
		}
		if f := checkTags(kind, tags, before); f != nil && c.action == "CreateTags" {
			return answer{}, f
		}
	}
	for _, do := range apply {
		do()
	}
	return c.succeed(leaf("return", true))
}

// modifyInstanceAttribute changes one attribute.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ModifyInstanceAttribute.html
func (c *call) modifyInstanceAttribute() (answer, *failure) {
	p := c.params
	id, groups, typ := p.text("InstanceId"), p.list("GroupId"), p.text("InstanceType.Value")
	check, hasCheck := p.flag("SourceDestCheck.Value", true), p.has("SourceDestCheck.Value")
	if f := p.check(); f != nil {
		return answer{}, f
	}
	h, f := c.instance(id)
	if f != nil {
		return answer{}, f
	}
	i := h.current()
	if typ != "" {
		return c.changeType(h, typ)
	}
	if f := checkGroups(groups, i.subnet); f != nil {
		return answer{}, f
	}
	for _, n := range c.aws.interfaces {
		if d := n.current(); d == nil || d.instance != id || d.index != 0 {
			continue
		}
		n.change(c.aws.now(), func(n *networkInterface) {
			if len(groups) > 0 {
				n.groups = slices.Clone(groups)
			}
			if hasCheck {
				n.sourceDestCheck = check
			}
		})
	}
	return c.succeed(leaf("return", true))
}

func (c *call) changeType(h *history[instance], typ string) (answer, *failure) {
	i := h.current()
	t, known := typeNamed(typ)
	m, _ := imageWith(i.image)
	switch {
	case i.state != stopped:
		return answer{}, badRequest("IncorrectInstanceState", "The instance '%s' is not in the 'stopped' state.", i.id)
	case !known || t.arch != m.arch:
		return answer{}, badRequest("InvalidInstanceAttributeValue", "Invalid value '%s' for InstanceType.", typ)
	}
	h.change(c.aws.now(), func(i *instance) { i.typ, i.coreCount = typ, (t.vcpus+1)/2 })
	return c.succeed(leaf("return", true))
}

// modifyInstanceMetadataOptions changes the metadata options.
func (c *call) modifyInstanceMetadataOptions() (answer, *failure) {
	p := c.params
	id := p.text("InstanceId")
	want := metadataOptions{tokens: p.oneOf("HttpTokens", "optional", "required"),
		endpoint: p.oneOf("HttpEndpoint", "enabled", "disabled"),
		tags:     p.oneOf("InstanceMetadataTags", "enabled", "disabled"), hops: p.number("HttpPutResponseHopLimit")}
	if f := p.check(); f != nil {
		return answer{}, f
	}
	h, f := c.instance(id)
	if f != nil {
		return answer{}, f
	}
	h.change(c.aws.now(), func(i *instance) { i.metadata = want })
	return c.succeed(leaf("instanceId", id), parent("instanceMetadataOptions", leaf("state", "pending"),
		leaf("httpTokens", want.tokens), leaf("httpPutResponseHopLimit", want.hops), leaf("httpEndpoint", want.endpoint),
		leaf("instanceMetadataTags", want.tags)))
}

// describeProfileAssociations lists the instance profiles of instances.
func (c *call) describeProfileAssociations() (answer, *failure) {
	ids := c.params.list("AssociationId")
	return list(c, lister[instance]{ids: ids, all: c.aws.instances, name: "iamInstanceProfileAssociationSet",
		missing: "InvalidAssociationID.NotFound", idOf: func(i *instance) string { return i.profile.association },
		see: func(h *history[instance]) *instance {
			if i := h.current(); i != nil && i.profile.association != "" && i.state != terminated {
				return i
			}
			return nil
		},
		filter: func(i *instance, name string) ([]string, bool) {
			if name == "instance-id" {
				return []string{i.id}, true
			}
			return nil, false
		},
		describe: func(i *instance) []node { return i.association("associated") }})
}

func (i *instance) association(state string) []node {
	return []node{leaf("associationId", i.profile.association), leaf("instanceId", i.id), leaf("state", state),
		parent("iamInstanceProfile", leaf("arn", i.profile.arn), leaf("id", i.profile.id))}
}

// wantedProfile reads the profile of a call.
func (c *call) wantedProfile() (profile, *failure) {
	p := c.params.child("IamInstanceProfile")
	if p == nil {
		return profile{}, badRequest("MissingParameter", "The request must contain the parameter IamInstanceProfile")
	}
	want := profile{arn: p.text("Arn"), id: c.aws.id("AIPA"), association: c.aws.id("iip-assoc")}
	if name := p.text("Name"); name != "" {
		want.arn = c.aws.iamARN("instance-profile/" + name)
	}
	name := want.arn[strings.LastIndex(want.arn, "/")+1:]
	if !slices.Contains(instanceProfiles(), name) {
		return profile{}, badRequest("InvalidParameterValue",
			"Value (%s) for parameter iamInstanceProfile is invalid. Invalid "+
				"IAM Instance Profile", want.arn)
	}
	return want, nil
}

func (c *call) associateProfile() (answer, *failure) {
	id := c.params.text("InstanceId")
	want, f := c.wantedProfile()
	if f != nil {
		return answer{}, f
	}
	if f := c.params.check(); f != nil {
		return answer{}, f
	}
	h, f := c.instance(id)
	if f != nil {
		return answer{}, f
	}
	if h.current().profile.arn != "" {
		return answer{}, badRequest("IncorrectState", "There is an existing association for instance %s", id)
	}
	return c.setProfile(h, want, "associating")
}

func (c *call) replaceProfile() (answer, *failure) {
	association := c.params.text("AssociationId")
	want, f := c.wantedProfile()
	if f != nil {
		return answer{}, f
	}
	if f := c.params.check(); f != nil {
		return answer{}, f
	}
	h, f := c.associated(association)
	if f != nil {
		return answer{}, f
	}
	return c.setProfile(h, want, "associating")
}

func (c *call) disassociateProfile() (answer, *failure) {
	association := c.params.text("AssociationId")
	if f := c.params.check(); f != nil {
		return answer{}, f
	}
	h, f := c.associated(association)
	if f != nil {
		return answer{}, f
	}
	out, f := c.succeed(parent("iamInstanceProfileAssociation", h.current().association("disassociating")...))
	h.change(c.aws.now(), func(i *instance) { i.profile = profile{} })
	return out, f
}

func (c *call) setProfile(h *history[instance], want profile, state string) (answer, *failure) {
	if f := c.permitProfile(want.arn); f != nil {
		return answer{}, f
	}
	h.change(c.aws.now(), func(i *instance) { i.profile = want })
	return c.succeed(parent("iamInstanceProfileAssociation", h.current().association(state)...))
}

func (c *call) associated(association string) (*history[instance], *failure) {
	for _, h := range c.aws.instances {
		if i := h.current(); i != nil && i.profile.association == association && association != "" {
			return h, c.permit("instance", i.tags, nil)
		}
	}
	return nil, fail(http.StatusBadRequest, "InvalidAssociationID.NotFound", "An invalid association-id '%s' was given",
		association)
}
