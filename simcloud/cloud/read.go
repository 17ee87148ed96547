package cloud

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"machinist.dev/machinist/simcloud"
)

// version is a state of an instance, and the time when this state was written. Reads with a lag may still return an old
// version.
type version struct {
	at  time.Time
	rec *record
}

// lags contains the delays until reads show a write. GetInstance has the delay get, and lists have the delay list.
// Changes of tags have the delay tags in both.
type lags struct{ get, list, tags simcloud.Duration }

func lagsOf(s simcloud.Settings) lags {
	return lags{max(s.ReadLag, s.Semantics.GetLag), max(s.ReadLag, s.Semantics.ListLag),
		max(s.ReadLag, s.Semantics.TagLag)}
}

func (l lags) longest() simcloud.Duration { return max(l.get, l.list, l.tags) }

// addVersion adds the current record to the versions of its instance, and removes versions that no read can return
// anymore.
func (c *Cloud) addVersion(inst *instance) {
	longest := lagsOf(c.settings).longest()
	if longest == 0 {
		inst.versions = nil
		return
	}
	now := c.now()
	horizon := now.Add(-time.Duration(longest))
	visible := 0
	for i := 1; i < len(inst.versions); i++ {
		if !inst.versions[i].at.After(horizon) {
			visible = i
		}
	}
	inst.versions = append(slices.Clone(inst.versions[visible:]), version{now, inst.rec})
}

// showAll makes all earlier writes visible at once.
func (c *Cloud) showAll() {
	for _, inst := range c.instances {
		inst.versions = []version{{rec: inst.rec}}
	}
}

// recordBefore returns an earlier version of the record, which was current when the duration lag began. If the instance
// did not exist at that time, the result is nil.
func (c *Cloud) recordBefore(inst *instance, lag simcloud.Duration) *record {
	if lag == 0 || len(inst.versions) == 0 {
		return inst.rec
	}
	horizon := c.now().Add(-time.Duration(lag))
	var rec *record
	for _, v := range inst.versions {
		if !v.at.After(horizon) {
			rec = v.rec
		}
	}
	return rec
}

// visibleRecord returns the record that a read with this lag shows now, or nil.
func (c *Cloud) visibleRecord(inst *instance, lag simcloud.Duration) *record {
	rec := c.recordBefore(inst, lag)
	if rec == nil || rec.Hidden {
		return nil
	}
	if tagLag := lagsOf(c.settings).tags; tagLag > lag {
		rec = rec.clone()
		rec.Instance.Tags = nil
		if older := c.recordBefore(inst, tagLag); older != nil {
			rec.Instance.Tags = older.Instance.Tags
		}
	}
	return rec
}

// read returns an instance in the form in which Get and List return it. Depending on the semantics, the instance has an
// outdated state.
func (c *Cloud) read(inst *instance, rec *record) *simcloud.Instance {
	out := c.answer(inst, rec)
	inst.reads++
	returns := time.Duration(c.settings.Semantics.StateReturns)
	if inst.reads%2 == 0 && inst.previousState != "" && c.now().Before(inst.stateSince.Add(returns)) {
		out.State = inst.previousState
	}
	return out
}

// answer returns an instance in the form in which all operations return it. Depending on the semantics, it changes the
// case of IDs and the times.
func (c *Cloud) answer(inst *instance, rec *record) *simcloud.Instance {
	out, s := inst.view(rec), c.settings.Semantics
	c.answerCount++
	if out.State == simcloud.StateRunning {
		out.GuestIP = c.settings.GuestIP
	}
	if s.OtherCase && c.answerCount%2 == 0 {
		out.ID, out.Region, out.Zone = strings.ToUpper(out.ID), strings.ToUpper(out.Region), strings.ToUpper(out.Zone)
		out.ProviderID = providerID(out.Region, out.Zone, out.ID)
	}
	if offset := time.Duration(s.ClockOffset); offset != 0 {
		out.LaunchTime = out.LaunchTime.Add(offset)
		for _, at := range []**time.Time{&out.ReclaimTime, &out.TerminationTime} {
			if *at != nil {
				shifted := (*at).Add(offset)
				*at = &shifted
			}
		}
	}
	return out
}

// view returns the exact state of an instance. The result shares maps and slices with the record, which are never
// modified.
func (inst *instance) view(rec *record) *simcloud.Instance {
	out := rec.Instance
	out.Host = inst.hostStatus()
	return &out
}

// Get returns an instance. With a read lag, the state may be outdated.
func (c *Cloud) Get(accountName, id string) (*simcloud.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if inst := c.instances[id]; inst != nil && inst.rec.Account == accountName {
		if rec := c.visibleRecord(inst, lagsOf(c.settings).get); rec != nil {
			return c.read(inst, rec), nil
		}
	}
	return nil, failNoInstance(id)
}

// List returns a page of instances. If the settings contain a list lag, the instances on the page may be outdated.
func (c *Cloud) List(accountName string, o simcloud.ListInstancesOptions) (*simcloud.InstanceList, error) {
	limit, after, err := pageOf(o)
	if err != nil {
		return nil, err
	}
	page := &simcloud.InstanceList{Instances: []simcloud.Instance{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	lag := lagsOf(c.settings).list
	o = c.filter(o)
	for _, inst := range c.candidates(o, after) {
		if inst.rec.Account != accountName {
			continue
		}
		rec := c.visibleRecord(inst, lag)
		if rec == nil || !matches(rec, o) {
			continue
		}
		if len(page.Instances) == limit {
			page.NextToken = encodeNext(after)
			break
		}
		page.Instances = append(page.Instances, *c.read(inst, rec))
		after = rec.Sequence
	}
	c.applyListSemantics(page)
	return page, nil
}

// filter drops the options that lists must ignore because of Semantics.FiltersIgnored.
func (c *Cloud) filter(o simcloud.ListInstancesOptions) simcloud.ListInstancesOptions {
	if c.settings.Semantics.FiltersIgnored {
		o.Tags, o.HasTags, o.Name = nil, nil, ""
	}
	return o
}

func (c *Cloud) applyListSemantics(page *simcloud.InstanceList) {
	if len(page.Instances) == 0 {
		return
	}
	s := c.settings.Semantics
	c.pages++
	if s.ListOmits > 0 && c.pages%s.ListOmits == 0 {
		page.Instances = page.Instances[1:]
	}
	if s.ListRepeats && len(page.Instances) > 0 {
		slices.Reverse(page.Instances)
		page.Instances = append(page.Instances, page.Instances[0])
	}
}

// candidates returns the instances after a sequence number that may match the options, in order of creation. For an
// indexed tag, it avoids a scan of all instances.
func (c *Cloud) candidates(o simcloud.ListInstancesOptions, after int) []*instance {
	start, _ := c.position(after + 1)
	rest := c.order[start:]
	if lags := lagsOf(c.settings); lags.list > 0 || lags.tags > 0 {
		return rest // The index has only current tags.
	}
	var rarest map[*instance]bool
	for key, value := range o.Tags {
		if set := c.tags[tag{key, value}]; rarest == nil || len(set) < len(rarest) {
			if rarest = set; len(set) == 0 {
				return nil
			}
		}
	}
	if rarest == nil || len(rarest) > len(rest)/8 {
		return rest
	}
	var found []*instance
	for inst := range rarest {
		if inst.rec.Sequence > after {
			found = append(found, inst)
		}
	}
	slices.SortFunc(found, func(a, b *instance) int { return a.rec.Sequence - b.rec.Sequence })
	return found
}

func matches(rec *record, o simcloud.ListInstancesOptions) bool {
	i := &rec.Instance
	for key, value := range o.Tags {
		if got, ok := i.Tags[key]; !ok || got != value {
			return false
		}
	}
	for _, key := range o.HasTags {
		if _, ok := i.Tags[key]; !ok {
			return false
		}
	}
	return (o.Name == "" || o.Name == i.Name) &&
		(o.Region == "" || o.Region == i.Region) &&
		(o.Zone == "" || o.Zone == i.Zone) &&
		(len(o.States) == 0 || slices.Contains(o.States, i.State))
}

// pageOf returns the page size and the sequence number after which the page begins.
func pageOf(o simcloud.ListInstancesOptions) (limit, after int, err error) {
	if o.Limit == 0 {
		o.Limit = simcloud.MaxPageSize
	}
	if o.Limit < 0 || o.Limit > simcloud.MaxPageSize {
		return 0, 0, fail(simcloud.CodeInvalidParameter, "limit: %d is not from 1 to %d", o.Limit, simcloud.MaxPageSize)
	}
	after, err = decodeNext(o.NextToken)
	return o.Limit, after, err
}

// A page token is the sequence of the last instance on the page. A page token contains a sequence instead of an offset.
// So a created or deleted instance cannot make the next page omit or repeat other instances.

func encodeNext(after int) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(after)))
}

func decodeNext(token string) (int, error) {
	if token == "" {
		return 0, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		if after, err := strconv.Atoi(string(text)); err == nil && after > 0 && encodeNext(after) == token {
			return after, nil
		}
	}
	return 0, fail(simcloud.CodeInvalidParameter, "nextToken: %q was not returned by a list", token)
}

// Current returns the current state of an instance, even if reads have a lag. Fault rules are matched with this state.
func (c *Cloud) Current(accountName, id string) (*simcloud.Instance, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	inst := c.instances[id]
	if inst == nil || inst.rec.Account != accountName || inst.rec.Hidden {
		return nil, false
	}
	return inst.view(inst.rec), true
}

// Regions returns the regions that an account may use.
func (c *Cloud) Regions(accountName string) []simcloud.Region {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.accounts[accountName]
	all := []simcloud.Region{}
	for _, r := range c.catalog.Regions {
		if a == nil || !a.mayUse(r.Name) {
			continue
		}
		region := simcloud.Region{Name: r.Name}
		for _, z := range r.Zones {
			region.Zones = append(region.Zones, z.Name)
		}
		all = append(all, region)
	}
	return all
}

// InstanceTypes returns all types.
func (c *Cloud) InstanceTypes() []simcloud.InstanceType { return c.catalog.InstanceTypes }

// Images returns all images.
func (c *Cloud) Images() []simcloud.Image { return c.catalog.Images }

// Dump returns the complete state of all instances.
func (c *Cloud) Dump() *simcloud.Dump {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := &simcloud.Dump{InstancesCreated: c.created, Records: make([]simcloud.Record, 0, len(c.order))}
	for _, inst := range c.order {
		d.Records = append(d.Records, *inst.dump())
	}
	return d
}

func (inst *instance) dump() *simcloud.Record {
	rec := inst.rec
	out := &simcloud.Record{
		Instance: *inst.view(rec), Sequence: rec.Sequence, Account: rec.Account, Hidden: rec.Hidden,
		AddressInUse: rec.AddressInUse,
	}
	for kind, acts := range map[simcloud.InstanceFaultKind]bool{
		simcloud.FaultNeverBoots: rec.NeverBoots, simcloud.FaultSilent: rec.Silent,
		simcloud.FaultNeverRegisters: rec.NeverRegisters, simcloud.FaultHangs: rec.Hung,
	} {
		if acts {
			out.Faults = append(out.Faults, simcloud.InstanceFault{Kind: kind})
		}
	}
	out.Faults = append(out.Faults, rec.Faults...)
	return out
}

// Count adds the numbers of instances to the statistics.
func (c *Cloud) Count(s *simcloud.Statistics) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.InstancesCreated, s.InstancesLive, s.PeakLive = c.created, c.live, c.peak
	s.States = map[simcloud.InstanceState]int{}
	for _, inst := range c.order {
		s.States[inst.rec.Instance.State]++
	}
}
