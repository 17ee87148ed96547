package timeline

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"machinist.dev/machinist/internal/cli/printer"
)

// barColumns is the width of the bar for the share of a step.
const barColumns = 10

// Text writes a table for each operation, with one row for each step.
func (t Timeline) Text(w io.Writer, s printer.Style) error {
	var out strings.Builder
	head := []string{s.Bold(t.Object) + " -n " + t.Namespace}
	if t.State != "" {
		head = append(head, t.State)
	}
	if t.Node != "" {
		head = append(head, "node "+printer.Sanitize(t.Node))
	}
	fmt.Fprintln(&out, strings.Join(head, "   "))
	for _, o := range t.Operations {
		fmt.Fprintln(&out)
		if err := o.text(&out, s); err != nil {
			return err
		}
	}
	for _, u := range t.ReadErrors {
		fmt.Fprintf(&out, "\n%s\n", s.Dim(printer.Sanitize(u)))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (o Operation) text(w io.Writer, s printer.Style) error {
	ends := "until now"
	if o.End != nil {
		ends = "until " + formatTime(*o.End)
	}
	fmt.Fprintf(w, "%s   %s, from %s %s\n", s.Bold(string(o.Kind)), FormatDuration(o.Seconds), formatTime(o.Start), ends)
	head := []string{"STEP", "STARTED", "TOOK", "SHARE", "WAITED FOR"}
	if s.AllColumns {
		head = append(head, "REASON", "ENDED BY")
	}
	var rows [][]string
	for _, step := range o.Steps {
		waited := printer.Sanitize(step.WaitedFor)
		if step.End == nil {
			waited = s.Warn("now:") + " " + waited
		}
		row := []string{step.Name, formatStart(o.Start, step.Start), FormatDuration(step.Seconds),
			share(step.Share, s), waited}
		if s.AllColumns {
			row = append(row, step.Reason, step.EndedBy)
		}
		rows = append(rows, row)
		if message := printer.Sanitize(step.Message); message != "" && step.End == nil {
			rows = append(rows, indented("  "+message, len(head)))
		}
		for _, e := range step.Events {
			rows = append(rows, indented("  "+e.line(), len(head)))
		}
	}
	if err := printer.Table(w, head, rows); err != nil {
		return err
	}
	for _, u := range o.Unknown {
		fmt.Fprintln(w, s.Dim("Not known: "+printer.Sanitize(u)))
	}
	return nil
}

func indented(text string, columns int) []string {
	row := make([]string, columns)
	row[4] = text
	return row
}

func (e Occurrence) line() string {
	times := ""
	if e.Count > 1 {
		times = fmt.Sprintf(" %d times", e.Count)
	}
	return strings.TrimSpace(fmt.Sprintf("%s event %s%s: %s", e.Time.Format("15:04:05Z"), printer.Sanitize(e.Reason), times,
		printer.Sanitize(e.Message)))
}

// formatStart returns the start time of a step for the table. The text includes the date only if the step and the
// operation started on different days.
func formatStart(operation, step time.Time) string {
	if operation.UTC().Format(time.DateOnly) == step.UTC().Format(time.DateOnly) {
		return step.UTC().Format("15:04:05Z")
	}
	return formatTime(step)
}

// FormatDuration formats the duration of a step in seconds. For less than one second, the text is "<1s", because
// times in the API are whole seconds.
func FormatDuration(seconds float64) string {
	if seconds < 1 {
		return "<1s"
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

func share(part float64, s printer.Style) string {
	percent := int32(math.Round(part * 100))
	return fmt.Sprintf("%s %3d%%", printer.Bar(s, percent, 100, barColumns), percent)
}
