package fleet

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"machinist.dev/machinist/internal/cli/printer"
)

// Orphan is an instance without a Machine, or its remaining parts.
type Orphan struct {
	// Namespace and Machine identify the former Machine, according to the tags of the instance.
	Namespace string `json:"namespace"`
	Machine   string `json:"machine"`
	Provider  string `json:"provider"`
	// Instance is the provider ID, or the names of the remaining parts.
	Instance string `json:"instance"`
	// FirstSeen is the time when the provider process first found the instance.
	FirstSeen time.Time `json:"firstSeen"`
	// Outcome is the result of the latest check as one word. Explanation describes this result in a sentence.
	Outcome     string `json:"outcome"`
	Explanation string `json:"explanation"`
}

func orphansOf(f Facts) []Orphan {
	found := []Orphan{}
	for _, r := range f.Orphans {
		for _, e := range r.Entries {
			namespace, machine, _ := strings.Cut(e.Machine, "/")
			found = append(found, Orphan{namespace, machine, r.Provider, EntryName(e), e.FirstSeen, e.Outcome,
				Outcome(e.Outcome, r.Interval())})
		}
	}
	slices.SortFunc(found, func(a, b Orphan) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Machine, b.Machine),
			cmp.Compare(a.Instance, b.Instance))
	})
	return found
}

func (s Status) writeOrphans(w *strings.Builder) {
	var rows [][]string
	var namespaces []string
	for _, o := range s.Orphans {
		rows = append(rows, []string{printer.Sanitize(o.Instance), printer.Sanitize(o.Machine),
			printer.Age(s.Now, o.FirstSeen) + " ago", o.Explanation})
		namespaces = append(namespaces, printer.Sanitize(o.Namespace))
	}
	s.writeTable(w, []string{"INSTANCE WITHOUT MACHINE", "FORMER MACHINE", "FIRST SEEN", "STATUS"}, rows, namespaces)
}
