package fakeazure

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// freed are cores of a machine that was removed.
type freed struct {
	cpus int
	at   time.Time
}

// now is what Azure's clock shows.
func (a *Azure) now() time.Time { return time.Now().Add(a.options.Semantics.ClockSkew) }

// timestamp is a time of Azure's as its answers have it.
func (a *Azure) timestamp() string { return a.now().UTC().Format(time.RFC3339Nano) }

// check is what a read of one resource finds.
func (a *Azure) check(id string) *resource {
	s := a.options.Semantics
	a.reads++
	r := a.find(id)
	if r != nil && s.NewUnknown > 0 && time.Since(r.created) < s.NewUnknown {
		return nil
	}
	if r == nil && s.GoneKnown > 0 {
		for _, past := range slices.Backward(a.past) {
			if strings.EqualFold(past.id, id) && time.Since(past.gone) < s.GoneKnown {
				return past
			}
		}
	}
	return r
}

// view is a resource as reads and lists show it.
func (a *Azure) view(r *resource) object {
	out := r.show()
	if late := a.options.Semantics.TagsLate; late > 0 && time.Since(r.created) < late {
		delete(out, "tags")
	}
	if a.goesBack(r) {
		child(out, "properties")["provisioningState"] = "Creating"
	}
	if a.options.Semantics.IDsUpper {
		upper(out, 4, 8)
	}
	return out
}

// upper spells segments of a resource's ID in upper case.
func upper(r object, segments ...int) {
	id, _ := r["id"].(string)
	parts := strings.Split(id, "/")
	for _, i := range segments {
		if i < len(parts) {
			parts[i] = strings.ToUpper(parts[i])
		}
	}
	r["id"] = strings.Join(parts, "/")
}

// goesBack reports whether a virtual machine is shown as one that is being created although it was shown as more.
func (a *Azure) goesBack(r *resource) bool {
	back, age := a.options.Semantics.StateBack, time.Since(r.created)
	if a.options.Semantics.StateFlickers && r.kind == kindVM && r.state() == "Succeeded" && a.reads%2 == 0 {
		return true
	}
	return r.kind == kindVM && back > 0 && age >= back && age < 2*back && r.state() == "Succeeded"
}

// arrange is a list as it is shown.
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
		for _, one := range all {
			upper(one, 4)
		}
	}
	if s.ListsMissPage {
		if c.azure.listed[c.Operation]%2 == 0 {
			all = all[min(len(all), c.azure.options.PageSize):]
		}
	}
	return all
}

// pad makes a page longer.
func (c *call) pad(page object) {
	if n := c.azure.options.Semantics.ListPadding; n > 0 {
		page["padding"] = strings.Repeat("x", n)
	}
}

// retryAfter is how an answer asks for patience.
// https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
func (a *Azure) retryAfter(header http.Header, seconds int) {
	header.Set("Retry-After", strconv.Itoa(seconds))
	if a.options.Semantics.ClockSkew != 0 {
		header.Set("Retry-After", a.now().Add(time.Duration(seconds)*time.Second).UTC().Format(http.TimeFormat))
	}
}

// free counts the cores of a machine that is removed for a while.
func (a *Azure) free(vm *resource) {
	if a.options.Semantics.QuotaLag > 0 {
		a.freed = append(a.freed, freed{cpus: a.cpusOf(text(vm.body, "properties", "hardwareProfile", "vmSize")),
			at: time.Now()})
	}
}

// notFreed are the cores that still count although their machines are gone.
func (a *Azure) notFreed() (n int) {
	for _, f := range a.freed {
		if time.Since(f.at) < a.options.Semantics.QuotaLag {
			n += f.cpus
		}
	}
	return n
}

// withClock has answers say what Azure's clock shows.
func (a *Azure) withClock(header http.Header) {
	if a.options.Semantics.ClockSkew != 0 {
		header.Set("Date", a.now().UTC().Format(http.TimeFormat))
	}
}
