package ui

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/internal/platform/wording"
)

func functions() template.FuncMap {
	return template.FuncMap{
		"clean": printer.Sanitize,
		"state": func(word string) State { return State{Word: word, Tone: fleet.ToneOf(word)} },
		"tone":  func(tone, word string) State { return State{Word: word, Tone: fleet.Tone(tone)} },
		"count": wording.Count[int],
		"few":   why.JoinFirst,
		"machineURL": func(namespace, name string) string {
			return objectPath("machines", namespace, name)
		},
		"deploymentURL": func(namespace, name string) string {
			return objectPath("deployments", namespace, name)
		},
		"aboutURL": aboutURL,
		"query":    func(path string, pairs ...string) string { return withQuery(path, values(pairs...)) },
		"dict":     dict,
	}
}

// aboutURL returns the URL of the page about TYPE/NAME, or "".
func aboutURL(namespace, about string) string {
	kind, name, _ := strings.Cut(about, "/")
	switch {
	case namespace == "" || name == "":
		return ""
	case kind == "machine":
		return objectPath("machines", namespace, name)
	case kind == "machinedeployment":
		return objectPath("deployments", namespace, name)
	case kind == "machineset":
		return Filter{Namespace: namespace, Set: name}.URL()
	}
	return ""
}

// dict builds a map from alternating names and values. A page uses dict to pass several arguments to a template,
// because a template takes only one argument.
func dict(pairs ...any) (map[string]any, error) {
	all := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok || i+1 == len(pairs) {
			return nil, fmt.Errorf("dict needs pairs of names and values")
		}
		all[name] = pairs[i+1]
	}
	return all, nil
}

// State is a word that describes the state of an object. Tone determines the color and the icon of the word.
type State struct {
	Word string
	Tone fleet.Tone
}

// Moment holds the texts with which a page shows a time.
type Moment struct {
	// Machine holds the time in the format RFC 3339, for programs. Exact holds the date and time for the user. Words
	// holds the time relative to now, such as "5m" for a past time, or "in 5m" for a future time.
	Machine, Exact, Words string
}

// Time returns the texts with which a page shows the time t. It returns nil for a zero time.
func (v view) Time(t any) *Moment {
	var at time.Time
	switch t := t.(type) {
	case time.Time:
		at = t
	case *time.Time:
		if t != nil {
			at = *t
		}
	}
	if at.IsZero() {
		return nil
	}
	at = at.UTC()
	m := &Moment{Machine: at.Format(time.RFC3339), Exact: at.Format("2006-01-02 15:04:05 UTC")}
	if ahead := at.Sub(v.Now); ahead > time.Second {
		m.Words = "in " + duration.HumanDuration(ahead)
	} else {
		m.Words = printer.Age(v.Now, at)
	}
	return m
}

// Active reports whether the navigation entry for path is highlighted: the current page or its parent.
func (v view) Active(path string) bool {
	return v.Path == path || path != "/" && strings.HasPrefix(v.Path, path+"/") ||
		path == "/" && strings.HasPrefix(v.Path, "/deployments/")
}

// Segment is a part of a bar. At holds the distance of the segment from the left end of the bar. Long holds the length
// of the segment. The length of the whole bar is 1000.
type Segment struct {
	Class    string
	At, Long int
}

// Segments returns the parts of the bar from left to right. If a deployment has fewer machines than desired, the
// segments do not fill the whole bar.
func (b Bar) Segments() []Segment {
	total := b.Total()
	if total == 0 {
		return nil
	}
	var segments []Segment
	longest, counted := 0, 0
	for _, part := range []struct {
		class string
		n     int
	}{{"ready", b.Ready}, {"coming", b.Coming}, {"old", b.Old}, {"failed", b.Failed}, {"leaving", b.Leaving}} {
		if part.n == 0 {
			continue
		}
		// Each segment has a minimum length, so that a single machine is visible in a bar of ten thousand machines. The
		// longest segment becomes shorter to compensate for this.
		long := max(1000*part.n/total, 8)
		counted += part.n
		segments = append(segments, Segment{Class: part.class, Long: long})
		if long > segments[longest].Long {
			longest = len(segments) - 1
		}
	}
	if len(segments) == 0 {
		return nil
	}
	rest := 1000 * counted / total
	for i, s := range segments {
		if i != longest {
			rest -= s.Long
		}
	}
	segments[longest].Long = rest
	at := 0
	for i := range segments {
		segments[i].At = at
		at += segments[i].Long
	}
	return segments
}

// Words returns a text with the numbers of machines that the bar shows.
func (b Bar) Words() string {
	parts := []string{fmt.Sprintf("%d of %d ready with the newest revision", b.Ready, b.Desired)}
	for _, part := range []struct {
		n    int
		what string
	}{{b.Coming, "not ready yet"}, {b.Old, "with older revisions"}, {b.Failed, "failed"}, {b.Leaving, "being deleted"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	return strings.Join(parts, ", ")
}

// Paging contains the position of the current page in a long list, and the URLs of the other pages.
type Paging struct {
	// From and To are the first and the last row on the page, counted from 1. Total is the number of rows on all pages.
	From, To, Total int
	// Page is the number of this page. Pages is the number of pages.
	Page, Pages int
	// Previous, Next, First and Last are URLs of other pages, or empty.
	Previous, Next, First, Last string
}

func paginate[T any](all []T, number, size int, address func(page int) string) ([]T, Paging) {
	pages := max(1, (len(all)+size-1)/size)
	number = min(max(number, 1), pages)
	from, to := (number-1)*size, min(number*size, len(all))
	p := Paging{From: from + 1, To: to, Total: len(all), Page: number, Pages: pages}
	if len(all) == 0 {
		p.From = 0
	}
	if number > 1 {
		p.Previous, p.First = address(number-1), address(1)
	}
	if number < pages {
		p.Next, p.Last = address(number+1), address(pages)
	}
	return all[from:to], p
}
