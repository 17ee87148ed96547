package why

import (
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"machinist.dev/machinist/internal/cli/printer"
)

// View is what a person who asked why is reported.
type View struct {
	// Now is the time at which it was so.
	Now time.Time `json:"now"`
	// Object is what was asked about, as TYPE/NAME, in Namespace.
	Object    string `json:"object"`
	Namespace string `json:"namespace"`
	// State is its phase, or how many of its machines there are.
	State string `json:"state,omitempty"`
	// Node is that of a machine, if it has one.
	Node string `json:"node,omitempty"`
	// Findings are what it waits for, what stands first in its way first.
	Findings []Finding `json:"findings"`
	// Failures are recent failures of the machines of a deployment, or of the machine, newest first. They may be repaired.
	Failures []Failure `json:"recentFailures,omitempty"`
	// Unread says what could not be read, and why.
	Unread []string `json:"unread,omitempty"`
}

// Text writes it for people.
func (v View) Text(w io.Writer, s printer.Style) error {
	var out strings.Builder
	head := []string{s.Strong(v.Object) + " -n " + v.Namespace}
	if v.State != "" {
		head = append(head, v.State)
	}
	if v.Node != "" {
		head = append(head, "node "+printer.Clean(v.Node))
	}
	fmt.Fprintln(&out, strings.Join(head, "   "))
	for _, f := range v.Findings {
		fmt.Fprintln(&out)
		v.finding(&out, f, s)
	}
	v.failures(&out, s)
	for _, u := range v.Unread {
		fmt.Fprintf(&out, "\n%s\n", s.Faint(printer.Clean(u)))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (v View) failures(w io.Writer, s printer.Style) {
	shown := v.Failures
	if !s.Wide {
		shown = Lately(shown, v.Now)
	}
	if len(shown) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", s.Strong("Recent failures, also of machines that are repaired or gone:"))
	for _, f := range shown {
		fmt.Fprintf(w, "  %s\n", f.Line(v.Now))
	}
}

func (v View) finding(w io.Writer, f Finding, s printer.Style) {
	what := f.What
	if f.About != v.Object {
		what = f.About + ": " + what
	}
	fmt.Fprintln(w, s.Strong(printer.Clean(what)))
	line := func(label, words string) {
		if words = printer.Clean(words); words != "" {
			fmt.Fprintf(w, "  %-9s %s\n", label, words)
		}
	}
	line("Which:", Few(f.Machines, 3))
	line("Message:", f.Message)
	if f.Since != nil {
		line("Since:", fmt.Sprintf("%s (%s ago)", stamp(*f.Since), printer.Age(v.Now, *f.Since)))
	}
	if f.Until != nil {
		line("Until:", fmt.Sprintf("%s (in %s)", stamp(*f.Until), duration.HumanDuration(f.Until.Sub(v.Now))))
	}
	line("Ends:", f.Ends)
	line("You can:", f.Do)
	if s.Wide {
		line("Reason:", strings.TrimPrefix(f.Condition+"/"+f.Reason, "/"))
	}
}

// Few names at most so many, and says how many more there are.
func Few(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
