package cloud

import (
	"strings"
	"time"

	"machinist.dev/machinist/simcloud"
)

const (
	addressPrefix  = "a-"
	instancePrefix = "i-"
)

// Addresses returns a page of addresses, including those kept after the termination of their instances. Addresses lag
// behind writes, like other lists.
func (c *Cloud) Addresses(accountName string, o simcloud.ListInstancesOptions) (*simcloud.AddressList, error) {
	limit, after, err := pageOf(o)
	if err != nil {
		return nil, err
	}
	page := &simcloud.AddressList{Addresses: []simcloud.Address{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	lag := lagsOf(c.settings).list
	o = c.filter(o)
	for _, inst := range c.candidates(o, after) {
		rec := c.recordBefore(inst, lag)
		if inst.rec.Account != accountName || rec == nil || !rec.hasAddress() || !matches(rec, o) {
			continue
		}
		if len(page.Addresses) == limit {
			page.NextToken = encodeNext(after)
			break
		}
		page.Addresses = append(page.Addresses, *rec.address())
		after = rec.Sequence
	}
	return page, nil
}

func (r *record) address() *simcloud.Address {
	in := &r.Instance
	return &simcloud.Address{
		ID: addressPrefix + strings.TrimPrefix(in.ID, instancePrefix), IP: in.PrivateIPs[0], InstanceID: in.ID,
		Region: in.Region, Zone: in.Zone, InUse: r.live(), Tags: in.Tags, LaunchTime: in.LaunchTime,
	}
}

// DeleteAddress deletes the address of a terminated instance.
func (c *Cloud) DeleteAddress(accountName, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	suffix, ours := strings.CutPrefix(id, addressPrefix)
	inst := c.instances[instancePrefix+suffix]
	if !ours || inst == nil || inst.rec.Account != accountName || !inst.rec.hasAddress() {
		return fail(simcloud.CodeNotFound, "address %q does not exist", id)
	}
	if _, err := c.writableAccount(accountName, inst.rec.Instance.Region); err != nil {
		return err
	}
	if inst.rec.live() {
		return fail(simcloud.CodeConflict, "address %s belongs to instance %s, which is not terminated", id,
			inst.rec.Instance.ID)
	}
	if gone := inst.rec.Instance.TerminationTime; gone != nil &&
		c.now().Before(gone.Add(time.Duration(c.settings.Semantics.AddressHold))) {
		return fail(simcloud.CodeConflict, "address %s is still in use", id)
	}
	next := inst.rec.clone()
	next.advance(c.now(), c.settings)
	next.AddressInUse = false
	if err := c.commit(inst, next); err != nil {
		return failJournal(err)
	}
	return nil
}
