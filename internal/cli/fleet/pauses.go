package fleet

import (
	"fmt"
	"io"
	"strings"

	"machinist.dev/machinist/internal/cli/printer"
)

// Pauses is the result of a command that pauses or resumes the fleets of one or more namespaces.
type Pauses struct {
	// Kind is always PauseResult.
	Kind       string  `json:"kind"`
	Namespaces []Pause `json:"namespaces"`
}

// Pause describes how the fleet of one namespace was paused or resumed.
type Pause struct {
	Namespace string `json:"namespace"`
	// Done is what the command did: "paused", "already paused" or "resumed".
	Done string `json:"done"`
	// Since is the time at which the fleet was paused, By is the user who paused it, and Reason is the reason that the
	// user gave.
	Since  string `json:"since"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Text writes one line for each namespace.
func (p Pauses) Text(w io.Writer, _ printer.Style) error {
	var out strings.Builder
	for _, x := range p.Namespaces {
		fmt.Fprintf(&out, "namespace/%s %s", x.Namespace, x.Done)
		if x.Done != "paused" {
			fmt.Fprintf(&out, " (paused at %s%s%s)", x.Since, prefixed(" by ", x.By), prefixed(": ", x.Reason))
		}
		out.WriteString("\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// prefixed adds a prefix to a text that a user wrote. If the text is empty, the result is empty too.
func prefixed(prefix, text string) string {
	if text = printer.Clean(text); text == "" {
		return ""
	}
	return prefix + text
}
