package fleet

import (
	"fmt"
	"io"
	"strings"

	"machinist.dev/machinist/internal/cli/printer"
)

// Pauses is the output of a command that pauses or resumes fleets.
type Pauses struct {
	// Kind is always PauseResult.
	Kind       string  `json:"kind"`
	Namespaces []Pause `json:"namespaces"`
}

// Pause describes who paused the fleet of one namespace, when and why.
type Pause struct {
	Namespace string `json:"namespace"`
	// Outcome is "paused", "already paused" or "resumed".
	Outcome string `json:"done"`
	// Since is the time when the fleet was paused, By is the user, and Reason is the user's reason.
	Since  string `json:"since"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Text writes one line for each namespace.
func (p Pauses) Text(w io.Writer, _ printer.Style) error {
	var out strings.Builder
	for _, x := range p.Namespaces {
		fmt.Fprintf(&out, "namespace/%s %s", x.Namespace, x.Outcome)
		if x.Outcome != "paused" {
			fmt.Fprintf(&out, " (paused at %s%s%s)", x.Since, prefixed(" by ", x.By), prefixed(": ", x.Reason))
		}
		out.WriteString("\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// prefixed adds a prefix to a text that is not empty.
func prefixed(prefix, text string) string {
	if text = printer.Sanitize(text); text == "" {
		return ""
	}
	return prefix + text
}
