package printer

import (
	"fmt"
	"io"
	"strings"
)

// Fit cuts a text without colours so that it takes no more columns than there are. A number under 1 is no limit.
func Fit(text string, columns int) string {
	if columns < 1 || Visible(text) <= columns {
		return text
	}
	return string([]rune(text)[:columns-1]) + "…"
}

// Live shows something that changes: on a terminal lines that are drawn over, elsewhere a line for each change.
type Live struct {
	Out      io.Writer
	Terminal bool

	drawn int
	last  string
}

// Draw shows a picture in place of the one before. Where there is no terminal it writes the line instead, if that is
// news. The picture's lines must not be wider than the terminal, or they are not drawn over in full.
func (l *Live) Draw(picture []string, line string) {
	if !l.Terminal {
		if line != l.last {
			l.last = line
			fmt.Fprintln(l.Out, line)
		}
		return
	}
	text := strings.Join(picture, "\n")
	if text == l.last && l.drawn > 0 {
		return
	}
	l.Erase()
	fmt.Fprintln(l.Out, text)
	l.last, l.drawn = text, len(picture)
}

// Erase takes the picture off, so that other lines may be written in its place.
func (l *Live) Erase() {
	if l.drawn > 0 {
		fmt.Fprintf(l.Out, "\x1b[%dA\x1b[J", l.drawn)
	}
	l.drawn = 0
}

// Bar draws n of total as a bar of that many columns.
func Bar(s Style, n, total int32, columns int) string {
	full, empty := "█", "░"
	if s.Plain {
		full, empty = "#", "."
	}
	filled := columns
	if total > 0 {
		filled = int(int64(columns) * int64(max(0, min(n, total))) / int64(total))
	}
	return s.Good(strings.Repeat(full, filled)) + s.Faint(strings.Repeat(empty, columns-filled))
}
