// Package printer formats the text output of commands: colors, tables and ages. It also removes control characters from
// untrusted text. Output without colors contains the same information as output with colors.
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

// Style determines how text output looks.
type Style struct {
	// If Colour is true, text may have colors. If Wide is true, tables have all columns.
	Colour, Wide bool
	// If Plain is true, bars and trees are drawn with ASCII characters only.
	Plain bool
}

// Good returns the text in green if colors are enabled.
func (s Style) Good(text string) string { return s.paint("32", text) }

// Bad returns the text in red if colors are enabled.
func (s Style) Bad(text string) string { return s.paint("31", text) }

// Warn returns the text in yellow if colors are enabled.
func (s Style) Warn(text string) string { return s.paint("33", text) }

// Faint returns the text dimmed if colors are enabled.
func (s Style) Faint(text string) string { return s.paint("2", text) }

// Strong returns the text in bold if colors are enabled.
func (s Style) Strong(text string) string { return s.paint("1", text) }

func (s Style) paint(code, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Table writes a table in the style of kubectl, with three spaces between the columns. Color codes do not affect the
// width of a column.
func Table(w io.Writer, head []string, rows [][]string) error {
	all := append([][]string{head}, rows...)
	widths := make([]int, len(head))
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], Visible(cell))
		}
	}
	var out strings.Builder
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-Visible(cell)+3))
			}
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

var colours = regexp.MustCompile("\x1b\\[[0-9]+m")

// Visible returns the number of columns that a text occupies on a terminal. Color codes occupy no columns.
func Visible(text string) int { return utf8.RuneCountInString(colours.ReplaceAllString(text, "")) }

// Clean makes untrusted text, such as the message of a condition, safe for a terminal. It replaces line ends with
// spaces. It removes characters that would move the cursor, change colors, or change the direction of the text.
func Clean(text string) string {
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

// Age returns the duration between the times then and now, in the format of kubectl. For a zero time, Age returns an
// empty string. If then is later than now because a clock is behind, Age returns 0s.
func Age(now, then time.Time) string {
	if then.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(now.Sub(then), 0))
}
