package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/pkg/provider"
)

// correct is a driver for fakeCloud that follows the contract. Tests can replace the functions in its fields.
type correct struct {
	cloud    *fakeCloud
	pageSize int

	decode      func(raw []byte) (machineSpec, error)
	tokenOf     func(provider.Credentials) (string, error)
	idempotency func(provider.CreateRequest) string
	nicOf       func(provider.Machine) string
	tags        func(provider.CreateRequest) map[string]string
	translate   func(error) error
	// requiredTags returns the tags that an instance must have to be deleted.
	requiredTags func(cluster string, m provider.Machine) map[string]string
	convert      func(server) *provider.Instance
	// The following fields are true in a driver that follows the contract. checksFirst makes Create look for an
	// instance of the machine first. once makes List return each instance only once per page. disks makes Delete also
	// delete the disks.
	checksFirst, once, disks bool
	// With filters, the driver checks that the results of a search match its request. With untagged, Delete finds a
	// network interface without tags by its name. With replaces, Create replaces a reserved network interface.
	filters, untagged, replaces bool
	// With forgets, the driver replaces a session that the cloud refuses. With findsCopies, the driver distinguishes a
	// server from its copies. With noticesOmissions, the driver notices that an answer is not complete.
	forgets, findsCopies, noticesOmissions bool
	sessions                               *provider.Clients[string]
	// userData returns what the driver passes to the cloud.
	userData func(provider.CreateRequest) string
}

type machineSpec struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Size       string `json:"size"`
}

func newCorrect(c *fakeCloud) *correct {
	d := &correct{cloud: c, pageSize: 2, checksFirst: true, once: true, disks: true, filters: true,
		untagged: true, replaces: true, forgets: true, findsCopies: true, noticesOmissions: true,
		sessions: new(provider.Clients[string])}
	d.userData = func(req provider.CreateRequest) string { return string(req.UserData.Reveal()) }
	d.decode = decodeMachine
	d.tokenOf = tokenOf
	d.idempotency = func(req provider.CreateRequest) string { return req.Token }
	d.nicOf = func(m provider.Machine) string { return "of-" + string(m.UID) }
	d.tags = func(req provider.CreateRequest) map[string]string { return req.Tags }
	d.translate = translate
	d.requiredTags = ownerTags
	d.convert = d.describe
	return d
}

func decodeMachine(raw []byte) (machineSpec, error) {
	var spec machineSpec
	if err := provider.DecodeSpec(raw, "fake/v1", "Fake", &spec); err != nil {
		return spec, err
	}
	if spec.Size != "small" && spec.Size != "large" {
		return spec, provider.InvalidField("size", "%q is not small or large", spec.Size)
	}
	return spec, nil
}

var tokenFormat = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

func tokenOf(c provider.Credentials) (string, error) {
	token, found := c.Get("token")
	if !found || !tokenFormat.Match(token.Reveal()) {
		return "", provider.Errorf(provider.InvalidArgument, "the credentials have no well-formed token")
	}
	return string(token.Reveal()), nil
}

func ownerTags(cluster string, m provider.Machine) map[string]string {
	return map[string]string{provider.TagCluster: cluster, provider.TagMachineUID: string(m.UID)}
}

func translate(err error) error {
	e, ok := errors.AsType[*cloudError](err)
	if !ok {
		return err
	}
	code := map[string]provider.Code{
		"NotFound": provider.NotFound, "Conflict": provider.Aborted, "TagsDiffer": provider.FailedPrecondition,
		"TokenReused": provider.AlreadyExists, "TokenSpent": provider.AlreadyExists, "Invalid": provider.InvalidArgument,
		"Reserved":  provider.Aborted,
		"Exhausted": provider.ResourceExhausted, "TooLong": provider.Internal,
	}[e.kind]
	out := provider.Errorf(cmp.Or(code, provider.Code(e.kind)), "the cloud answered %s", e.kind)
	out.RetryAfter = e.retryAfter
	return out
}

func (d *correct) describe(s server) *provider.Instance {
	state, code := provider.StatePending, provider.Code("")
	switch {
	case s.deletions > 0:
		state = provider.StateTerminating
	case s.failure == noCapacity && s.checks > d.cloud.readLag+1:
		state, code = provider.StateFailed, provider.ResourceExhausted
	case s.off:
		state = provider.StateStopped
	case s.action == provider.PowerOn:
		state = provider.StatePending
	case s.checks > d.cloud.bootReads+d.cloud.readLag:
		state = provider.StateRunning
	}
	handle := ""
	if state == provider.StatePending && s.action == "" {
		handle = taskOf(s.id)
	}
	tags := d.ownTags(s)
	var guest []corev1.NodeAddress
	if s.claimed != "" {
		guest = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: s.claimed}}
	}
	return &provider.Instance{
		ProviderID: "fake://zone-1/" + strings.ToLower(s.id), State: state, StateCode: code, NodeName: strings.ToLower(s.node), Type: s.size,
		Zone:      "zone-1",
		ClusterID: tags[provider.TagCluster], MachineUID: types.UID(tags[provider.TagMachineUID]),
		MachineKey: tags[provider.TagMachine], CreateHandle: handle,
		Scope: "nic=" + s.nic, GuestAddresses: guest,
	}
}

func (d *correct) Name() string { return "fake" }

func (d *correct) Validate(_ context.Context, req provider.ValidateRequest) error {
	if _, err := d.decode(req.Class.Spec); err != nil || req.Class.Credentials.IsEmpty() {
		return err
	}
	_, err := d.tokenOf(req.Class.Credentials)
	return err
}

func (d *correct) Capacity(_ context.Context, req provider.CapacityRequest) (provider.Capacity, error) {
	spec, err := d.decode(req.Class.Spec)
	return provider.Capacity{InstanceType: spec.Size,
		Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}, err
}

func (d *correct) Create(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
	spec, err := d.decode(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	token, err := d.signIn(ctx, req.Class.Credentials)
	if err != nil {
		return nil, err
	}
	if d.checksFirst {
		found, err := d.byTags(ctx, token, req.ClusterID, req.Machine)
		if err == nil {
			return d.convert(found), nil
		}
		if !provider.IsNotFound(err) {
			return nil, err
		}
	}
	nic := d.nicOf(req.Machine)
	if err := d.createNIC(ctx, token, nic, d.tags(req)); err != nil {
		return nil, d.translate(err)
	}
	want := wanted{
		idempotency: d.idempotency(req), size: spec.Size, node: req.Machine.Name, nic: nic,
		userData: d.userData(req), tags: maps.Clone(d.tags(req)), uuid: string(req.Machine.UID),
	}
	if want.tags != nil {
		want.tags[boundTo] = want.uuid
	}
	created, err := d.cloud.createServer(ctx, token, want)
	if isKind(err, "Reserved") && d.replaces {
		if err = d.cloud.deletePart(ctx, token, "nic/"+nic, nil); err == nil {
			err = d.createNIC(ctx, token, nic, d.tags(req))
		}
		if err == nil {
			created, err = d.cloud.createServer(ctx, token, want)
		}
	}
	if err != nil {
		return nil, d.translate(err)
	}
	return d.convert(created), nil
}

func (d *correct) createNIC(ctx context.Context, token, name string, tags map[string]string) error {
	tagged, err := d.cloud.putNIC(ctx, token, name, tags)
	if err != nil || tagged {
		return err
	}
	return d.cloud.tagNIC(ctx, token, name, tags)
}

func (d *correct) byTags(ctx context.Context, token, cluster string, m provider.Machine) (server, error) {
	if cluster == "" || m.UID == "" {
		return server{}, provider.Errorf(provider.InvalidArgument, "cluster ID or UID is empty")
	}
	found, _, err := d.cloud.listServers(ctx, token, ownerTags(cluster, m), 0, 100)
	if err != nil {
		return server{}, d.translate(err)
	}
	if err := d.unreadable(found...); err != nil {
		return server{}, err
	}
	if d.filters {
		found = slices.DeleteFunc(found, func(s server) bool { return !includes(d.ownTags(s), ownerTags(cluster, m)) })
	}
	if len(found) == 0 {
		return server{}, provider.Errorf(provider.NotFound, "machine %s has no server", m.UID)
	}
	return found[0], nil
}

func idOf(providerID string) (string, error) {
	id, valid := strings.CutPrefix(providerID, "fake://zone-1/")
	if !valid {
		return "", provider.Errorf(provider.InvalidArgument, "%.128q is not a provider ID", providerID)
	}
	id, _, _ = strings.Cut(id, "/")
	return id, nil
}

func (d *correct) Get(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
	token, err := d.signIn(ctx, req.Class.Credentials)
	if err != nil {
		return nil, err
	}
	if req.ProviderID == "" {
		found, err := d.byTags(ctx, token, req.ClusterID, req.Machine)
		if err != nil {
			return nil, err
		}
		return d.convert(found), nil
	}
	id, err := idOf(req.ProviderID)
	if err != nil {
		return nil, err
	}
	found, err := d.cloud.getServer(ctx, token, id, req.CreateHandle)
	if err != nil {
		return nil, d.translate(err)
	}
	if err := d.unreadable(found); err != nil {
		return nil, err
	}
	return d.convert(found), nil
}

func (d *correct) List(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
	token, err := d.signIn(ctx, req.Class.Credentials)
	if err != nil {
		return provider.ListPage{}, err
	}
	if req.ClusterID == "" {
		return provider.ListPage{}, provider.Errorf(provider.InvalidArgument, "cluster ID is empty")
	}
	after, _ := strconv.Atoi(req.Continue)
	servers, more, err := d.cloud.listServers(ctx, token, map[string]string{provider.TagCluster: req.ClusterID}, after,
		d.pageSize)
	if err != nil {
		return provider.ListPage{}, d.translate(err)
	}
	if err := d.unreadable(servers...); err != nil {
		return provider.ListPage{}, err
	}
	var page provider.ListPage
	on := map[string]bool{}
	for _, s := range servers {
		in := d.convert(s)
		if d.filters && in.ClusterID != req.ClusterID {
			continue
		}
		if !d.once || !on[in.ProviderID] {
			page.Instances = append(page.Instances, *in)
		}
		on[in.ProviderID] = true
	}
	if more {
		page.Continue = strconv.Itoa(after + len(servers))
		return page, nil
	}
	parts, err := d.cloud.listParts(ctx, token, map[string]string{provider.TagCluster: req.ClusterID})
	if err != nil {
		return provider.ListPage{}, d.translate(err)
	}
	for _, p := range parts {
		if d.filters && p.tags[provider.TagCluster] != req.ClusterID {
			continue
		}
		page.Leftovers = append(page.Leftovers, provider.Leftover{
			ID: p.name, ClusterID: p.tags[provider.TagCluster], MachineUID: types.UID(p.tags[provider.TagMachineUID]),
			MachineKey: p.tags[provider.TagMachine],
		})
	}
	return page, nil
}

// ListScope implements provider.Scoper: the cloud has a single account.
func (d *correct) ListScope(provider.Class) (string, error) { return "account", nil }

// Account implements provider.Accounter.
func (d *correct) Account(provider.Class) (string, error) { return "account", nil }

// CapacityPool implements provider.Pooler: the cloud has a single pool.
func (d *correct) CapacityPool(provider.Class) (string, error) { return "", nil }

// Interruptions implements provider.Interrupter.
func (d *correct) Interruptions(ctx context.Context, req provider.InterruptionsRequest) ([]provider.Interruption,
	error) {
	token, err := d.signIn(ctx, req.Class.Credentials)
	if err != nil {
		return nil, err
	}
	ending, err := d.cloud.interruptions(ctx, token)
	if err != nil {
		return nil, d.translate(err)
	}
	var all []provider.Interruption
	for id, at := range ending {
		all = append(all, provider.Interruption{ProviderID: "fake://zone-1/" + id, ReclaimTime: at, Reason: provider.Preemption})
	}
	return all, nil
}

func (d *correct) Delete(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
	var none provider.DeleteResult
	token, err := d.signIn(ctx, req.Class.Credentials)
	if err != nil {
		return none, err
	}
	if req.ClusterID == "" || req.Machine.UID == "" {
		return none, provider.Errorf(provider.InvalidArgument, "cluster ID or UID is empty")
	}
	var id string
	if req.ProviderID != "" {
		if id, err = idOf(req.ProviderID); err != nil {
			return none, err
		}
		if found, err := d.cloud.getServer(ctx, token, id, req.CreateHandle); err == nil && d.ownTags(found) == nil &&
			found.tags != nil {
			return none, provider.Errorf(provider.FailedPrecondition, "%s is a copy", req.ProviderID)
		} else if err != nil && !isKind(err, "NotFound") {
			return none, d.translate(err)
		}
	} else if found, err := d.byTags(ctx, token, req.ClusterID, req.Machine); err == nil {
		id = found.id
	} else if !provider.IsNotFound(err) {
		return none, err
	}
	owned := d.requiredTags(req.ClusterID, req.Machine)
	if id != "" {
		if err := d.cloud.deleteServer(ctx, token, id, owned); err == nil {
			return none, nil
		} else if !isKind(err, "NotFound") {
			return none, d.translate(err)
		}
	}
	nic := "nic/" + d.nicOf(req.Machine)
	err = d.cloud.deletePart(ctx, token, nic, owned)
	if isKind(err, "NotFound") && d.untagged {
		err = d.cloud.deleteUntagged(ctx, token, nic) // The name of the interface contains the UID of the machine.
	}
	if err != nil && !isKind(err, "NotFound") {
		return none, d.translate(err)
	}
	parts, err := d.cloud.listParts(ctx, token, owned)
	if err != nil {
		return none, d.translate(err)
	}
	for _, p := range parts {
		if !d.disks || !strings.HasPrefix(p.name, "disk/") {
			continue
		}
		if err := d.cloud.deletePart(ctx, token, p.name, owned); err != nil && !isKind(err, "NotFound") {
			return none, d.translate(err)
		}
	}
	return provider.DeleteResult{Gone: true}, nil
}

func (d *correct) Update(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
	var none provider.UpdateResult
	spec, err := d.decode(req.Class.Spec)
	if err != nil {
		return none, err
	}
	token, err := d.signIn(ctx, req.Class.Credentials)
	if err != nil {
		return none, err
	}
	id, err := idOf(req.ProviderID)
	if err != nil {
		return none, err
	}
	s, err := d.cloud.getServer(ctx, token, id, req.CreateHandle)
	if err != nil {
		return none, d.translate(err)
	}
	found := d.convert(s)
	switch {
	case found.ClusterID != req.ClusterID || found.MachineUID != req.Machine.UID:
		return none, provider.Errorf(provider.FailedPrecondition, "%s belongs to another machine", req.ProviderID)
	case s.resizing != "":
		return provider.UpdateResult{Outcome: provider.UpdateInProgress, Instance: found}, nil
	case found.Type == spec.Size:
		return provider.UpdateResult{Outcome: provider.UpdateDone, Instance: found}, nil
	case !req.NodeDrained:
		return provider.UpdateResult{Outcome: provider.UpdateNeedsDrain, Instance: found}, nil
	}
	err = d.cloud.change(ctx, token, id, func(s *server) { s.resizing, s.resizeSteps = spec.Size, 0 })
	if err != nil {
		return none, d.translate(err)
	}
	return provider.UpdateResult{Outcome: provider.UpdateInProgress, Instance: found}, nil
}

// SetPower implements provider.Power.
func (d *correct) SetPower(ctx context.Context, req provider.PowerRequest) (*provider.Instance, error) {
	token, err := d.signIn(ctx, req.Class.Credentials)
	if err != nil {
		return nil, err
	}
	id, err := idOf(req.ProviderID)
	if err != nil {
		return nil, err
	}
	found, err := d.cloud.setPower(ctx, token, id, d.requiredTags(req.ClusterID, req.Machine), req.Action)
	if err != nil {
		return nil, d.translate(err)
	}
	return d.convert(found), nil
}

// Joined implements provider.Joiner.
func (d *correct) Joined(ctx context.Context, req provider.JoinedRequest) error {
	token, err := d.signIn(ctx, req.Class.Credentials)
	if err != nil {
		return err
	}
	id, err := idOf(req.ProviderID)
	if err != nil {
		return err
	}
	var refused error
	err = d.cloud.change(ctx, token, id, func(s *server) {
		if !includes(s.tags, d.requiredTags(req.ClusterID, req.Machine)) {
			refused = provider.Errorf(provider.FailedPrecondition, "%s belongs to another machine", req.ProviderID)
			return
		}
		s.userData = ""
	})
	if err != nil {
		return d.translate(err)
	}
	return refused
}

func (d *correct) Adopt(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
	token, err := d.signIn(ctx, req.Class.Credentials)
	if err != nil {
		return nil, err
	}
	id, err := idOf(req.ProviderID)
	if err != nil {
		return nil, err
	}
	var out server
	refused := false
	err = d.cloud.change(ctx, token, id, func(s *server) {
		tags := maps.Clone(req.Tags)
		maps.Copy(tags, s.tags)
		replaces := req.Replaces(d.convert(*s))
		for key, want := range ownerTags(req.ClusterID, req.Machine) {
			if got := s.tags[key]; got != "" && got != want && !replaces {
				refused = true
				return
			}
			tags[key] = want
		}
		s.tags = tags
		out = *s
	})
	switch {
	case err != nil:
		return nil, d.translate(err)
	case refused:
		// The code may be anywhere in the error's chain.
		return nil, fmt.Errorf("adopt: %w", provider.Errorf(provider.FailedPrecondition, "%s belongs to another machine",
			req.ProviderID))
	}
	return d.convert(out), nil
}
