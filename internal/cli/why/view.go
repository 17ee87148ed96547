package why

import (
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"machinist.dev/machinist/internal/cli/printer"
)

// View is what "machinist why" shows about one object: its state, the findings and the recent failures.
type View struct {
	// Now is the time when the objects were read.
	Now time.Time `json:"now"`
	// Object holds the TYPE/NAME of the explained object. Namespace holds the namespace of the object.
	Object    string `json:"object"`
	Namespace string `json:"namespace"`
	// State describes the object in a few words. For a machine, it is the phase. For a fleet, it has the actual and the
	// desired number of machines.
	State string `json:"state,omitempty"`
	// Node is the Node of a machine, or empty.
	Node string `json:"node,omitempty"`
	// Findings explain what the object waits for, first obstacle first.
	Findings []Finding `json:"findings"`
	// Failures are the recent failures of the machines, newest first. The machines may have recovered since.
	Failures []Failure `json:"recentFailures,omitempty"`
	// ReadErrors holds error messages: one sentence for each kind of object that could not be read.
	ReadErrors []string `json:"unread,omitempty"`
}

// Text writes the view as text.
func (v View) Text(w io.Writer, s printer.Style) error {
	var out strings.Builder
	head := []string{s.Bold(v.Object) + " -n " + v.Namespace}
	if v.State != "" {
		head = append(head, v.State)
	}
	if v.Node != "" {
		head = append(head, "node "+printer.Sanitize(v.Node))
	}
	fmt.Fprintln(&out, strings.Join(head, "   "))
	for _, f := range v.Findings {
		fmt.Fprintln(&out)
		v.finding(&out, f, s)
	}
	v.failures(&out, s)
	for _, u := range v.ReadErrors {
		fmt.Fprintf(&out, "\n%s\n", s.Dim(printer.Sanitize(u)))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (v View) failures(w io.Writer, s printer.Style) {
	shown := v.Failures
	if !s.AllColumns {
		shown = RecentFailures(shown, v.Now)
	}
	if len(shown) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", s.Bold("Recent failures, including machines that recovered or are gone:"))
	for _, f := range shown {
		fmt.Fprintf(w, "  %s\n", f.Line(v.Now))
	}
}

func (v View) finding(w io.Writer, f Finding, s printer.Style) {
	what := f.Description
	if f.Object != v.Object {
		what = f.Object + ": " + what
	}
	fmt.Fprintln(w, s.Bold(printer.Sanitize(what)))
	line := func(label, text string) {
		if text = printer.Sanitize(text); text != "" {
			fmt.Fprintf(w, "  %-9s %s\n", label, text)
		}
	}
	line("Machines:", JoinFirst(f.Machines, 3))
	line("Message:", f.Message)
	if f.StartTime != nil {
		line("Since:", fmt.Sprintf("%s (%s ago)", formatTime(*f.StartTime), printer.Age(v.Now, *f.StartTime)))
	}
	if f.NextStepTime != nil {
		line("Until:", fmt.Sprintf("%s (in %s)", formatTime(*f.NextStepTime), duration.HumanDuration(f.NextStepTime.Sub(v.Now))))
	}
	line("Next:", f.NextStep)
	line("You can:", f.Instructions)
	if s.AllColumns {
		line("Reason:", strings.TrimPrefix(f.Condition+"/"+f.Reason, "/"))
	}
}

// JoinFirst joins the first names into one text. If there are more names than limit, the text ends with the number of
// the remaining names.
func JoinFirst(names []string, limit int) string {
	if more := len(names) - limit; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), more)
	}
	return strings.Join(names, ", ")
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
