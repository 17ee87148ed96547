package auditlog

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Counts contains the numbers of write requests by result.
type Counts struct {
	Writes    int // successful writes, except of Events
	Events    int // successful writes of Events
	Conflicts int // writes refused with 409: outdated, or the name already exists
	Failed    int // writes that failed for another reason

	ByCall map[Call]int // Writes by kind of request
}

// Call is a kind of request.
type Call struct {
	Verb, Group, Resource, Subresource string
}

// String returns the call in a form such as "patch machines.machinist.dev/status".
func (c Call) String() string {
	s := c.Verb + " " + c.Resource
	if c.Group != "" {
		s += "." + c.Group
	}
	if c.Subresource != "" {
		s += "/" + c.Subresource
	}
	return s
}

// String returns the totals in one line. Then the text has one line for each kind of write call, with the most
// frequent call first.
func (c Counts) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d writes, %d events, %d conflicts, %d failed", c.Writes, c.Events, c.Conflicts, c.Failed)
	calls := slices.SortedFunc(maps.Keys(c.ByCall), func(a, b Call) int {
		return cmp.Or(cmp.Compare(c.ByCall[b], c.ByCall[a]), strings.Compare(a.String(), b.String()))
	})
	for _, call := range calls {
		fmt.Fprintf(&s, "\n%8d %s", c.ByCall[call], call)
	}
	return s.String()
}

// CountWrites counts the writes among requests.
func CountWrites(requests []Request) Counts {
	counts := Counts{ByCall: map[Call]int{}}
	for _, r := range requests {
		counts.add(r)
	}
	return counts
}

func (c *Counts) add(r Request) {
	switch {
	case !r.mutates():
	case r.Code == http.StatusConflict:
		c.Conflicts++
	case !r.succeeded():
		c.Failed++
	case r.isEvent():
		c.Events++
	default:
		c.Writes++
		c.ByCall[Call{r.Verb, r.Group, r.Resource, r.Subresource}]++
	}
}
