package fakeazure

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// releasedCores are the cores of a deleted machine that may still count against the quota.
type releasedCores struct {
	cpus int
	at   time.Time
}

// now returns the time of Azure's clock, which may differ from the local clock.
func (a *Azure) now() time.Time { return time.Now().Add(a.options.Semantics.ClockSkew) }

// timestamp returns the time of Azure's clock in JSON format.
func (a *Azure) timestamp() string { return a.now().UTC().Format(time.RFC3339Nano) }

// read returns the resource that Get currently finds, or nil. See Semantics.ReadsMissNew and
// Semantics.ReadsShowDeleted.
func (a *Azure) read(id string) *resource {
	s := a.options.Semantics
	a.reads++
	r := a.find(id)
	if r != nil && s.ReadsMissNew > 0 && time.Since(r.created) < s.ReadsMissNew {
		return nil
	}
	if r == nil && s.ReadsShowDeleted > 0 {
		for _, past := range slices.Backward(a.deletedResources) {
			if strings.EqualFold(past.id, id) && time.Since(past.gone) < s.ReadsShowDeleted {
				return past
			}
		}
	}
	return r
}

// view returns a resource in the JSON format of a response, changed according to Semantics.
func (a *Azure) view(r *resource) object {
	out := r.show()
	if late := a.options.Semantics.TagsLate; late > 0 && time.Since(r.created) < late {
		delete(out, "tags")
	}
	if a.goesBack(r) {
		if r.vm.lastPower == "" {
			child(out, "properties")["provisioningState"] = "Creating"
		}
	}
	if a.options.Semantics.IDsUpper {
		upperCaseID(out, 4, 8)
	}
	return out
}

// upperCaseID converts segments of a resource's ID to upper case.
func upperCaseID(r object, segments ...int) {
	id, _ := r["id"].(string)
	parts := strings.Split(id, "/")
	for _, i := range segments {
		if i < len(parts) {
			parts[i] = strings.ToUpper(parts[i])
		}
	}
	r["id"] = strings.Join(parts, "/")
}

// goesBack reports whether reads show the state "Creating" although the virtual machine is running.
func (a *Azure) goesBack(r *resource) bool {
	back, age := a.options.Semantics.StateReverts, time.Since(r.created)
	if a.options.Semantics.StateFlickers && r.kind == kindVM && r.state() == "Succeeded" && a.reads%2 == 0 {
		return true
	}
	return r.kind == kindVM && back > 0 && age >= back && age < 2*back && r.state() == "Succeeded"
}

// arrange reorders, repeats and omits entries of a list, and changes the case of IDs, as Semantics requires.
func (c *call) arrange(all []object) []object {
	s := c.azure.options.Semantics
	if c.SkipToken == "" {
		c.azure.listed[c.Operation]++
	}
	if s.ListsReverse || s.ListsTurn && c.azure.listed[c.Operation]%2 == 0 {
		slices.Reverse(all)
	}
	if s.ListsRepeat && len(all) > 0 {
		all = slices.Concat(all[:1], all, all[:1])
	}
	if s.ListsUpper {
		for _, item := range all {
			upperCaseID(item, 4)
		}
	}
	if s.ListsMissPage {
		if c.azure.listed[c.Operation]%2 == 0 {
			all = all[min(len(all), c.azure.options.PageSize):]
		}
	}
	return all
}

func (c *call) pad(page object) {
	if n := c.azure.options.Semantics.ListPadding; n > 0 {
		page["padding"] = strings.Repeat("x", n)
	}
}

// retryAfter sets the header with the wait time.
// https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
func (a *Azure) retryAfter(header http.Header, seconds int) {
	header.Set("Retry-After", strconv.Itoa(seconds))
	if a.options.Semantics.ClockSkew != 0 {
		header.Set("Retry-After", a.now().Add(time.Duration(seconds)*time.Second).UTC().Format(http.TimeFormat))
	}
}

// releaseCores records the cores of a deleted machine, which count against the quota until Semantics.QuotaLag has
// passed.
func (a *Azure) releaseCores(vm *resource) {
	if a.options.Semantics.QuotaLag > 0 {
		a.released = append(a.released, releasedCores{
			cpus: a.cpusOf(text(vm.body, "properties", "hardwareProfile", "vmSize")), at: time.Now()})
	}
}

// coresNotReleased returns the cores of deleted machines that still count against the quota.
func (a *Azure) coresNotReleased() (n int) {
	for _, f := range a.released {
		if time.Since(f.at) < a.options.Semantics.QuotaLag {
			n += f.cpus
		}
	}
	return n
}

// withClock sets the Date header to Azure's clock.
func (a *Azure) withClock(header http.Header) {
	if a.options.Semantics.ClockSkew != 0 {
		header.Set("Date", a.now().UTC().Format(http.TimeFormat))
	}
}
