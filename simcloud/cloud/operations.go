package cloud

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"hash/fnv"
	"maps"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/catalog"
	"machinist.dev/machinist/simcloud/journal"
)

const (
	maxNameLength = 255
	maxDisks      = 16
	maxDiskGiB    = 64 << 10
	// maxHostname is the maximum length of the hostname label of a Node.
	maxHostname = 63
)

// Create creates an instance. If an instance with the same client token exists, Create returns it.
func (c *Cloud) Create(accountName string, req simcloud.CreateInstanceRequest,
	faults []simcloud.InstanceFault) (*simcloud.Instance, error) {
	parameters, err := parametersOf(req)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a, err := c.writableAccount(accountName, req.Region)
	if err != nil {
		return nil, err
	}
	if req.ClientToken != "" {
		if inst := c.tokens[tokenKey{accountName, req.ClientToken}]; inst != nil {
			if inst.rec.Parameters != parameters {
				return nil, fail(simcloud.CodeIdempotentParameterMismatch, "clientToken %q was used for instance %s with other "+
					"parameters", req.ClientToken, inst.rec.Instance.ID)
			}
			return c.answer(inst, inst.rec), nil
		}
	}

	next, err := c.resolve(req)
	if err != nil {
		return nil, err
	}
	out := &next.Instance
	if err := c.checkLimits(a, out.Region, out.Zone, out.Type, 1, next.TypeSpec.CPUs); err != nil {
		return nil, err
	}
	slot, ok := c.slots.take()
	if !ok {
		return nil, fail(simcloud.CodeInsufficientCapacity, "all %d addresses are in use", maxInstances)
	}
	next.PodSlot = slot
	out.PrivateIPs = []string{slotAddress(slot).String()}
	if out.Hostname == "" {
		out.Hostname = "ip-" + strings.ReplaceAll(out.PrivateIPs[0], ".", "-")
	}
	out.ID = c.newID()
	out.ProviderID = providerID(out.Region, out.Zone, out.ID)
	next.Sequence, next.Account, next.Parameters = c.created+1, accountName, parameters

	now := c.now()
	out.LaunchTime, out.State = now, simcloud.StatePending
	next.BootAt = now.Add(time.Duration(bootTime(next.TypeSpec, c.settings)) + jitter(out.ID, c.settings.BootJitter))
	for _, f := range faults {
		next.addFault(f, now.Add(time.Duration(f.After)))
	}
	next.advance(now, c.settings)

	inst := &instance{agendaIndex: -1}
	ops := []journal.Op{{Key: keyMeta, Value: meta{Created: c.created + 1}}}
	if len(req.UserData) > 0 {
		ops = append(ops, journal.Op{Key: keyUserData + out.ID, Value: req.UserData})
	}
	c.order = append(c.order, inst) // The new instance has the highest sequence.
	if err := c.commit(inst, next, ops...); err != nil {
		c.order = c.order[:len(c.order)-1]
		c.slots.release(slot)
		return nil, failJournal(err)
	}
	c.created++
	return c.answer(inst, next), nil
}

// resolve fills a record from a request, except for fields that are unique to an instance.
func (c *Cloud) resolve(req simcloud.CreateInstanceRequest) (*record, error) {
	invalid := func(format string, args ...any) (*record, error) {
		return nil, fail(simcloud.CodeInvalidParameter, format, args...)
	}
	region := c.catalog.Region(req.Region)
	if region == nil {
		return invalid("region: %q does not exist", req.Region)
	}
	if req.Zone == "" {
		req.Zone = region.Zones[0].Name
	}
	if region.Zone(req.Zone) == nil {
		return invalid("zone: %q does not exist in region %q", req.Zone, req.Region)
	}
	instanceType := c.catalog.InstanceType(req.Type)
	if instanceType == nil {
		return invalid("type: %q does not exist", req.Type)
	}
	image := c.catalog.Image(req.Image)
	if image == nil {
		return invalid("image: %q does not exist", req.Image)
	}
	if err := printable("name", req.Name, maxNameLength); err != nil {
		return nil, err
	}
	if err := printable("clientToken", req.ClientToken, simcloud.MaxClientTokenLength); err != nil {
		return nil, err
	}
	if req.Hostname != "" && !isHostname(req.Hostname) {
		return invalid("hostname: %q must be a DNS subdomain of at most %d characters", req.Hostname, maxHostname)
	}
	if req.Hostname == "" && isHostname(req.Name) {
		req.Hostname = req.Name
	}
	if len(req.UserData) > simcloud.MaxUserDataBytes {
		return invalid("userData: %d bytes are more than the maximum of %d", len(req.UserData), simcloud.MaxUserDataBytes)
	}
	if err := validateTags(req.Tags); err != nil {
		return nil, err
	}
	if len(req.Disks) > maxDisks {
		return invalid("disks: %d disks are more than the maximum of %d", len(req.Disks), maxDisks)
	}
	for _, d := range req.Disks {
		if len(validation.IsDNS1123Label(d.Name)) > 0 || d.SizeGiB < 1 || d.SizeGiB > maxDiskGiB {
			return invalid("disks: the name %q is not a DNS label, or the size %d GiB is not from 1 to %d GiB", d.Name,
				d.SizeGiB, maxDiskGiB)
		}
	}
	rec := &record{TypeSpec: *instanceType, ImageSpec: *image, Instance: simcloud.Instance{
		Name: req.Name, Hostname: req.Hostname, Region: req.Region, Zone: req.Zone,
		Type: req.Type, Image: req.Image, Architecture: instanceType.Architecture,
		Tags: req.Tags, Disks: req.Disks, ClientToken: req.ClientToken,
	}}
	if len(req.UserData) > 0 {
		rec.Instance.UserDataSHA256 = digest(req.UserData)
	}
	return rec, nil
}

// Delete starts the termination of an instance.
func (c *Cloud) Delete(accountName, id string) (*simcloud.Instance, error) {
	return c.change(accountName, id, func(next *record) error {
		if s := next.Instance.State; s != simcloud.StateShuttingDown && s != simcloud.StateTerminated {
			next.shutDown(c.now(), c.settings)
		}
		return nil
	})
}

// UpdateTags merges and removes tags.
func (c *Cloud) UpdateTags(accountName, id string, req simcloud.UpdateTagsRequest) (*simcloud.Instance, error) {
	return c.change(accountName, id, func(next *record) error {
		if !next.live() {
			return fail(simcloud.CodeConflict, "instance %s is terminated", id)
		}
		for key, want := range req.If {
			if got, tagged := next.Instance.Tags[key]; !tagged || got != want {
				return fail(simcloud.CodeConflict, "if: tag %q of instance %s is not %q", key, id, want)
			}
		}
		tags := maps.Clone(next.Instance.Tags)
		if tags == nil {
			tags = map[string]string{}
		}
		maps.Copy(tags, req.Set)
		for _, key := range req.Remove {
			if _, both := req.Set[key]; both {
				return fail(simcloud.CodeInvalidParameter, "remove: tag %q is also set", key)
			}
			delete(tags, key)
		}
		if err := validateTags(tags); err != nil {
			return err
		}
		next.Instance.Tags = tags
		return nil
	})
}

// Update changes the type, image or kubelet version in place.
func (c *Cloud) Update(accountName, id string, req simcloud.UpdateInstanceRequest) (*simcloud.Instance, error) {
	return c.change(accountName, id, func(next *record) error {
		out := &next.Instance
		if s := out.State; s != simcloud.StateRunning && s != simcloud.StateStopped {
			return fail(simcloud.CodeConflict, "instance %s is %s, but must be running or stopped", id, s)
		}
		mode := simcloud.InPlaceLive
		stricter := func(m simcloud.InPlaceMode) {
			if m == simcloud.InPlaceUnsupported || mode == simcloud.InPlaceLive {
				mode = m
			}
		}
		old := next.TypeSpec
		if req.Type != "" && req.Type != out.Type {
			t := c.catalog.InstanceType(req.Type)
			if t == nil {
				return fail(simcloud.CodeInvalidParameter, "type: %q does not exist", req.Type)
			}
			stricter(old.InPlace)
			stricter(t.InPlace)
			if t.Architecture != old.Architecture {
				stricter(simcloud.InPlaceUnsupported)
			}
			next.TypeSpec, out.Type = *t, t.Name
		}
		if req.Image != "" && req.Image != out.Image {
			i := c.catalog.Image(req.Image)
			if i == nil {
				return fail(simcloud.CodeInvalidParameter, "image: %q does not exist", req.Image)
			}
			stricter(i.InPlace)
			next.ImageSpec, out.Image = *i, i.Name
		}
		if req.KubeletVersion != "" && req.KubeletVersion != out.KubeletVersion {
			if !catalog.IsVersion(req.KubeletVersion) {
				return fail(simcloud.CodeInvalidParameter, "kubeletVersion: %q must have the form v1.2.3", req.KubeletVersion)
			}
			stricter(c.catalog.KubeletInPlace)
			out.KubeletVersion = req.KubeletVersion
		}
		if mode == simcloud.InPlaceUnsupported {
			return fail(simcloud.CodeUnsupportedOperation, "instance %s cannot be changed to %+v in place", id, req)
		}
		if next.TypeSpec.Name != old.Name {
			if err := c.checkLimits(c.accounts[accountName], out.Region, out.Zone, out.Type, 0,
				next.TypeSpec.CPUs-old.CPUs); err != nil {
				return err
			}
		}
		if mode == simcloud.InPlaceRestart && out.State == simcloud.StateRunning {
			next.reboot(c.now(), c.settings)
		}
		return nil
	})
}

// AddFault adds a fault to an instance of any account.
func (c *Cloud) AddFault(id string, fault simcloud.InstanceFault) (*simcloud.Record, error) {
	if err := ValidateFault(fault); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	inst := c.instances[id]
	if inst == nil {
		return nil, fail(simcloud.CodeNotFound, "instance %q does not exist", id)
	}
	now := c.now()
	next := inst.rec.clone()
	next.addFault(fault, now.Add(time.Duration(fault.After)))
	next.advance(now, c.settings)
	if err := c.commit(inst, next); err != nil {
		return nil, failJournal(err)
	}
	return inst.dump(), nil
}

// ValidateFault returns an error for an unknown kind or an invalid time.
func ValidateFault(f simcloud.InstanceFault) error {
	switch f.Kind {
	case simcloud.FaultBootDelay:
		if f.Delay <= 0 {
			return fail(simcloud.CodeInvalidParameter, "delay: %s must be positive", f.Delay)
		}
	case simcloud.FaultNeverBoots, simcloud.FaultGivesUp, simcloud.FaultNeverRegisters, simcloud.FaultDies,
		simcloud.FaultVanishes, simcloud.FaultReclaimed, simcloud.FaultSilent, simcloud.FaultHangs,
		simcloud.FaultIgnoresShutdown, simcloud.FaultRecovers:
		if f.Delay != 0 {
			return fail(simcloud.CodeInvalidParameter, "delay: only allowed for %s", simcloud.FaultBootDelay)
		}
	default:
		return fail(simcloud.CodeInvalidParameter, "kind: %q does not exist", f.Kind)
	}
	const most = simcloud.Duration(365 * 24 * time.Hour)
	if f.After < 0 || f.After > most || f.Delay > most {
		return fail(simcloud.CodeInvalidParameter, "after: %s and delay: %s must be from 0 to a year", f.After, f.Delay)
	}
	return nil
}

// change updates the record of an instance at the request of the account that owns the instance.
func (c *Cloud) change(accountName, id string, do func(next *record) error) (*simcloud.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	inst := c.instances[id]
	if inst == nil || inst.rec.Account != accountName || inst.rec.Hidden {
		return nil, failNoInstance(id)
	}
	if _, err := c.writableAccount(accountName, inst.rec.Instance.Region); err != nil {
		return nil, err
	}
	now := c.now()
	next := inst.rec.clone()
	next.advance(now, c.settings) // Changes that are due come before the requested change.
	if err := do(next); err != nil {
		return nil, err
	}
	next.advance(now, c.settings) // Apply changes with a duration of 0 at once.
	if err := c.commit(inst, next); err != nil {
		return nil, failJournal(err)
	}
	return c.answer(inst, next), nil
}

func failNoInstance(id string) error {
	return fail(simcloud.CodeNotFound, "instance %q does not exist", id)
}

// parametersOf returns a digest of the parameters that must match when a client token is reused.
func parametersOf(req simcloud.CreateInstanceRequest) (string, error) {
	data, err := json.Marshal(req)
	if err != nil {
		return "", fail(simcloud.CodeInvalidParameter, "request: %v", err)
	}
	return digest(data), nil
}

func providerID(region, zone, id string) string { return "sim://" + region + "/" + zone + "/" + id }

func (c *Cloud) newID() string {
	for {
		random := make([]byte, 9)
		rand.Read(random) // rand.Read never fails
		id := "i-" + hex.EncodeToString(random)[:17]
		if c.instances[id] == nil {
			return id
		}
	}
}

// jitter returns a part of maximum that depends only on the ID of the instance.
func jitter(id string, maximum simcloud.Duration) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(id))
	return time.Duration(float64(maximum) * float64(h.Sum32()) / math.MaxUint32)
}

// isHostname reports whether a name is a valid host name and fits into the hostname label.
func isHostname(name string) bool {
	return len(name) <= maxHostname && len(validation.IsDNS1123Subdomain(name)) == 0
}

func validateTags(tags map[string]string) error {
	if len(tags) > simcloud.MaxTags {
		return fail(simcloud.CodeInvalidParameter, "tags: %d tags are more than the maximum of %d", len(tags),
			simcloud.MaxTags)
	}
	for key, value := range tags {
		if key == "" || strings.Contains(key, "=") {
			return fail(simcloud.CodeInvalidParameter, "tags: key %q must not be empty or contain '='", key)
		}
		if err := printable("tags: key", key, simcloud.MaxTagKeyLength); err != nil {
			return err
		}
		if err := printable("tags: value of "+key, value, simcloud.MaxTagValueLength); err != nil {
			return err
		}
	}
	return nil
}

// printable returns an error for text that does not fit on one line.
func printable(field, text string, most int) error {
	if len(text) > most {
		return fail(simcloud.CodeInvalidParameter, "%s: %d bytes are more than the maximum of %d", field, len(text), most)
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return fail(simcloud.CodeInvalidParameter, "%s: %q must be printable UTF-8", field, text)
	}
	return nil
}
