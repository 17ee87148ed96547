package fleet

import (
	"fmt"
	"io"
	"strings"

	"machinist.dev/machinist/internal/cli/printer"
)

// Pauses are the fleets that were paused or resumed.
type Pauses struct {
	// Kind is PauseResult.
	Kind       string  `json:"kind"`
	Namespaces []Pause `json:"namespaces"`
}

// Pause is what was done to the fleet of a namespace.
type Pause struct {
	Namespace string `json:"namespace"`
	// Done is "paused", "already paused" or "resumed".
	Done string `json:"done"`
	// Since is when it was paused, By the user who did that, and Reason why.
	Since  string `json:"since"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Text writes a line for each namespace.
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

// prefixed returns a text of somebody with a prefix, empty if there is none.
func prefixed(prefix, text string) string {
	if text = printer.Clean(text); text == "" {
		return ""
	}
	return prefix + text
}
