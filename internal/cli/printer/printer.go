// Package printer formats the text output of commands: colors, tables and ages. The package removes control
// characters from untrusted text. Colors add no information.
package printer

import (
	"io"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Style is the style of text output.
type Style struct {
	// Colour is true if the output may contain colors. AllColumns is true if tables must show all columns.
	Colour, AllColumns bool
	// ASCII is true if bars and trees must consist of ASCII characters.
	ASCII bool
}

// Green returns the text in green if colors are enabled. Green means that there is no problem.
func (s Style) Green(text string) string { return s.paint("32", text) }

// Red returns the text in red if colors are enabled. Red means that there is a problem.
func (s Style) Red(text string) string { return s.paint("31", text) }

// Warn returns the text in yellow if colors are enabled. Yellow means a warning.
func (s Style) Warn(text string) string { return s.paint("33", text) }

// Dim returns the text dimmed if colors are enabled.
func (s Style) Dim(text string) string { return s.paint("2", text) }

// Bold returns the text in bold if colors are enabled.
func (s Style) Bold(text string) string { return s.paint("1", text) }

func (s Style) paint(code, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Table writes a table in the style of kubectl. Color codes do not affect the width of a column.
func Table(w io.Writer, head []string, rows [][]string) error {
	all := append([][]string{head}, rows...)
	widths := make([]int, len(head))
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], Width(cell))
		}
	}
	var out strings.Builder
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-Width(cell)+3))
			}
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

var colours = regexp.MustCompile("\x1b\\[[0-9]+m")

// Width returns the width of a text on a terminal, without color codes.
func Width(text string) int { return utf8.RuneCountInString(colours.ReplaceAllString(text, "")) }

// Sanitize makes untrusted text safe for a terminal. Line ends become spaces. Characters that move the cursor, change
// colors or change the direction of text are removed.
func Sanitize(text string) string {
	cleaned := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "�"))
	return strings.Join(strings.Fields(cleaned), " ")
}

// Age returns the time between then and now in kubectl's format. It is empty for a zero time, and 0s if a clock is
// behind.
func Age(now, then time.Time) string {
	if then.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(now.Sub(then), 0))
}
