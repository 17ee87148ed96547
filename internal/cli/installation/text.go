package installation

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"machinist.dev/machinist/internal/cli/printer"
)

// Text writes the versions as text.
func (v Versions) Text(w io.Writer, style printer.Style) error {
	out := &strings.Builder{}
	fmt.Fprintf(out, "Client: %s\n", v.Client.Build)
	if len(v.Kinds) > 0 {
		rows := make([][]string, len(v.Kinds))
		for i, k := range v.Kinds {
			rows[i] = []string{printer.Sanitize(k.Name), orDash(k.Release), strings.Join(k.ServedVersions, ","),
				strings.Join(k.Stored, ",")}
		}
		out.WriteString("\n")
		_ = printer.Table(out, []string{"KIND", "RELEASE", "SERVED", "STORED"}, rows)
	}
	if len(v.Processes) > 0 {
		head := []string{"PROCESS", "NAMESPACE", "VERSION", "READY", "LEADER"}
		if style.AllColumns {
			head = append(head, "IMAGE")
		}
		rows := make([][]string, len(v.Processes))
		for i, p := range v.Processes {
			ready := "-"
			if p.Pods > 0 {
				ready = fmt.Sprintf("%d/%d", p.Ready, p.Pods)
				if p.Ready < p.Pods {
					ready = style.Warn(ready)
				}
			}
			rows[i] = []string{printer.Sanitize(p.Program), p.Namespace, orDash(p.Version), ready, orDash(p.Leader)}
			if style.AllColumns {
				rows[i] = append(rows[i], printer.Sanitize(p.Image))
			}
		}
		out.WriteString("\n")
		_ = printer.Table(out, head, rows)
	}
	if len(v.Warnings) > 0 {
		out.WriteString("\n")
	}
	for _, warning := range v.Warnings {
		fmt.Fprintf(out, "%s %s\n", style.Warn("Warning:"), printer.Sanitize(warning))
	}
	for _, u := range v.ReadErrors {
		fmt.Fprintf(out, "%s\n", style.Dim(printer.Sanitize(u)))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// orDash removes control characters. An empty text becomes a dash.
func orDash(text string) string { return cmp.Or(printer.Sanitize(text), "-") }
