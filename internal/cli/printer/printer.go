// Package printer is how commands write for people: colours that only repeat what the words say, columns, ages, and
// words that come from elsewhere made harmless.
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

// Style is how text is written.
type Style struct {
	// Colour says that colours are wanted, Wide that no column is left out.
	Colour, Wide bool
	// Plain says that only ASCII must be drawn.
	Plain bool
}

// Good colours a word green where colours are wanted. Like those of the other methods, the colour only repeats what the
// word says.
func (s Style) Good(text string) string { return s.paint("32", text) }

// Bad colours a word red.
func (s Style) Bad(text string) string { return s.paint("31", text) }

// Warn colours a word yellow.
func (s Style) Warn(text string) string { return s.paint("33", text) }

// Faint dims a word.
func (s Style) Faint(text string) string { return s.paint("2", text) }

// Strong makes a word bold.
func (s Style) Strong(text string) string { return s.paint("1", text) }

func (s Style) paint(code, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Table writes rows in columns as kubectl does: capitals on top, three spaces between. Colours take no room.
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

// Visible is how many columns a text takes on a terminal.
func Visible(text string) int { return utf8.RuneCountInString(colours.ReplaceAllString(text, "")) }

// Clean makes words that come from elsewhere, such as the message of a condition, one line that a terminal only
// shows: what would move the cursor, colour the screen or turn the direction of writing is left out, and line ends
// are spaces.
func Clean(words string) string {
	cleaned := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(words, "�"))
	return strings.Join(strings.Fields(cleaned), " ")
}

// Age is how long ago something was, as kubectl informs it; empty where it is not known. A clock that is behind makes
// it 0s.
func Age(now, then time.Time) string {
	if then.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(now.Sub(then), 0))
}
