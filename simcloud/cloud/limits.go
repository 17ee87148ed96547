package cloud

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/catalog"
	"machinist.dev/machinist/simcloud/journal"
)

// account contains only a digest of the customer's token.
type account struct {
	name     string
	token    string
	readOnly bool
	regions  []string // allowed regions; all regions if empty
	quotas   map[string]simcloud.Quota
}

type usageKey struct{ account, region string }

// usage contains the numbers of instances and CPUs that count against a quota.
type usage struct{ instances, cpus int }

// capacityKey needs no region, because zone names are unique.
type capacityKey struct{ zone, instanceType string }

func accountsOf(c *catalog.Catalog) map[string]*account {
	all := map[string]*account{}
	for _, a := range c.Accounts {
		quotas := map[string]simcloud.Quota{}
		for region, quota := range a.Quotas {
			quotas[region] = quota
		}
		all[a.Name] = &account{name: a.Name, token: digest([]byte(a.Token)), readOnly: a.ReadOnly, regions: a.Regions,
			quotas: quotas}
	}
	return all
}

func capacityOf(c *catalog.Catalog) map[capacityKey]int {
	all := map[capacityKey]int{}
	for _, region := range c.Regions {
		for _, zone := range region.Zones {
			for instanceType, n := range zone.Capacity {
				all[capacityKey{zone.Name, instanceType}] = n
			}
		}
	}
	return all
}

// loadLimit restores the token or quota of an account, or the capacity of a zone, as an administrator last set it. If
// the configuration no longer contains the account or the zone, the value is ignored.
func (c *Cloud) loadLimit(key string) error {
	parts := strings.Split(key, "/")
	switch {
	case strings.HasPrefix(key, keyToken):
		var token string
		if _, err := c.journal.Get(key, &token); err != nil {
			return err
		}
		if a := c.accounts[parts[1]]; a != nil {
			a.token = token
		}
	case strings.HasPrefix(key, keyQuota):
		var quota simcloud.Quota
		if _, err := c.journal.Get(key, &quota); err != nil {
			return err
		}
		if a := c.accounts[parts[1]]; a != nil {
			a.quotas[parts[2]] = quota
		}
	case strings.HasPrefix(key, keyCapacity):
		var capacity simcloud.Capacity
		if _, err := c.journal.Get(key, &capacity); err != nil {
			return err
		}
		c.setCapacity(capacityKey{parts[1], parts[2]}, capacity.Instances)
	}
	return nil
}

// Authenticate returns the account of a token. Authenticate compares digests, so its duration reveals nothing about
// tokens.
func (c *Cloud) Authenticate(token string) (name string, ok bool) {
	d := digest([]byte(token))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.accounts {
		if a.token == d {
			return a.name, true
		}
	}
	return "", false
}

// SetToken replaces an account's token.
func (c *Cloud) SetToken(name, token string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.accounts[name]
	if a == nil {
		return fail(simcloud.CodeNotFound, "account %q does not exist", name)
	}
	if token == "" {
		return fail(simcloud.CodeInvalidParameter, "the token must not be empty")
	}
	d := digest([]byte(token))
	for _, other := range c.accounts {
		if other != a && other.token == d {
			return fail(simcloud.CodeConflict, "the token belongs to another account")
		}
	}
	if err := c.journal.Commit(journal.Op{Key: keyToken + name, Value: d}); err != nil {
		return failJournal(err)
	}
	a.token = d
	return nil
}

// SetQuota replaces an account's quota in a region.
func (c *Cloud) SetQuota(name, region string, quota simcloud.Quota) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.accounts[name]
	if a == nil {
		return fail(simcloud.CodeNotFound, "account %q does not exist", name)
	}
	if c.catalog.Region(region) == nil {
		return fail(simcloud.CodeNotFound, "region %q does not exist", region)
	}
	if err := catalog.ValidateQuota(quota); err != nil {
		return fail(simcloud.CodeInvalidParameter, "quota: %v", err)
	}
	if err := c.journal.Commit(journal.Op{Key: keyQuota + name + "/" + region, Value: quota}); err != nil {
		return failJournal(err)
	}
	a.quotas[region] = quota
	return nil
}

// SetCapacity limits the number of instances of a type in a zone. If n is nil, there is no limit.
func (c *Cloud) SetCapacity(region, zone, instanceType string, n *int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.catalog.Region(region); r == nil || r.Zone(zone) == nil {
		return fail(simcloud.CodeNotFound, "zone %q of region %q does not exist", zone, region)
	}
	if c.catalog.InstanceType(instanceType) == nil {
		return fail(simcloud.CodeNotFound, "instance type %q does not exist", instanceType)
	}
	if n != nil && *n < 0 {
		return fail(simcloud.CodeInvalidParameter, "instances: %d must not be negative", *n)
	}
	key := capacityKey{zone, instanceType}
	if err := c.journal.Commit(journal.Op{Key: keyCapacity + zone + "/" + instanceType,
		Value: simcloud.Capacity{Instances: n}}); err != nil {
		return failJournal(err)
	}
	c.setCapacity(key, n)
	return nil
}

func (c *Cloud) setCapacity(key capacityKey, n *int) {
	if n == nil {
		delete(c.capacity, key)
	} else {
		c.capacity[key] = *n
	}
}

// count adds the instance to the usage if sign is 1, and subtracts it if sign is -1.
func (c *Cloud) count(r *record, sign int) {
	if r.live() {
		c.live += sign
	}
	if !r.usesQuota() {
		return
	}
	key := usageKey{r.Account, r.Instance.Region}
	u := c.usage[key]
	c.usage[key] = usage{u.instances + sign, u.cpus + sign*r.TypeSpec.CPUs}
	if r.usesCapacity() {
		c.capacityUsed[capacityKey{r.Instance.Zone, r.Instance.Type}] += sign
	}
}

// checkLimits checks whether quota and capacity allow additional instances and CPUs.
func (c *Cloud) checkLimits(a *account, region, zone, instanceType string, instances, cpus int) error {
	used, quota := c.usage[usageKey{a.name, region}], a.quotas[region]
	if most := quota.MaxInstances; most != nil && instances > 0 && used.instances+instances > *most {
		return fail(simcloud.CodeQuotaExceeded, "account %q has %d of %d instances in region %q", a.name, used.instances,
			*most, region)
	}
	if most := quota.MaxCPUs; most != nil && cpus > 0 && used.cpus+cpus > *most {
		return fail(simcloud.CodeQuotaExceeded, "account %q has %d of %d CPUs in region %q, and needs %d more", a.name,
			used.cpus, *most, region, cpus)
	}
	return c.checkCapacity(zone, instanceType)
}

// checkCapacity checks whether the zone has capacity for another instance.
func (c *Cloud) checkCapacity(zone, instanceType string) error {
	key := capacityKey{zone, instanceType}
	if most, limited := c.capacity[key]; limited && c.capacityUsed[key]+1 > most {
		return fail(simcloud.CodeInsufficientCapacity, "zone %q has no capacity for another instance of type %q", zone,
			instanceType)
	}
	return nil
}

// writableAccount returns the account, or an error unless the account may change objects in the region.
func (c *Cloud) writableAccount(name, region string) (*account, error) {
	a := c.accounts[name]
	switch {
	case a == nil:
		return nil, fail(simcloud.CodeForbidden, "account %q does not exist", name)
	case a.readOnly:
		return nil, fail(simcloud.CodeForbidden, "account %q is read-only", name)
	case !a.mayUse(region):
		return nil, fail(simcloud.CodeForbidden, "account %q may not use region %q", name, region)
	}
	return a, nil
}

func (a *account) mayUse(region string) bool {
	return len(a.regions) == 0 || slices.Contains(a.regions, region)
}

func fail(code simcloud.ErrorCode, format string, args ...any) error {
	return &simcloud.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func failJournal(err error) error {
	return fail(simcloud.CodeInternalError, "the state cannot be saved: %v", err)
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
