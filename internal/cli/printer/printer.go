// Package printer writes the text output of commands: colours, tables, ages, and untrusted text without control
// characters. Colours never carry information that the text does not have.
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
	// Colour turns colours on. Wide shows all columns.
	Colour, Wide bool
	// Plain limits bars and branches to ASCII characters.
	Plain bool
}

// Good colours a text green if colours are on.
func (s Style) Good(text string) string { return s.paint("32", text) }

// Bad colours a text red if colours are on.
func (s Style) Bad(text string) string { return s.paint("31", text) }

// Warn colours a text yellow if colours are on.
func (s Style) Warn(text string) string { return s.paint("33", text) }

// Faint dims a text if colours are on.
func (s Style) Faint(text string) string { return s.paint("2", text) }

// Strong makes a text bold if colours are on.
func (s Style) Strong(text string) string { return s.paint("1", text) }

func (s Style) paint(code, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Table writes rows in columns like kubectl, with three spaces between columns. Colours do not count as width.
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

// Visible returns the number of columns that a text takes on a terminal.
func Visible(text string) int { return utf8.RuneCountInString(colours.ReplaceAllString(text, "")) }

// Clean returns untrusted text, such as the message of a condition, as one line that is safe for a terminal. It
// replaces line ends by spaces, and removes characters that would move the cursor, colour the screen or change the
// direction of writing.
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

// Age returns the time since then in the format of kubectl. It returns an empty string if then is zero, and 0s if then
// is in the future because a clock is behind.
func Age(now, then time.Time) string {
	if then.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(now.Sub(then), 0))
}
