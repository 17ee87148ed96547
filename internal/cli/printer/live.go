package printer

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// Fit cuts a text without colours so that it takes no more columns than there are. A number under 1 is no limit.
func Fit(text string, columns int) string {
	if columns < 1 || Visible(text) <= columns {
		return text
	}
	return string([]rune(text)[:columns-1]) + "…"
}

// Live shows something that changes: on a terminal lines that are drawn over, elsewhere a line for each change. Several
// goroutines may use it.
type Live struct {
	Out      io.Writer
	Terminal bool

	mu sync.Mutex
	// drawn is the number of lines of the picture that is on the terminal, last the text that was drawn last.
	drawn int
	last  string
}

// Draw shows a picture in place of the one before. Where there is no terminal it writes the line instead, unless it is
// the same as before. The picture's lines must not be wider than the terminal, or they are not drawn over in full.
func (l *Live) Draw(picture []string, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
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
	l.erase()
	l.paint(text, len(picture))
}

// Printf writes a line that stays, above the picture.
func (l *Live) Printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.drawn
	l.erase()
	fmt.Fprintf(l.Out, format+"\n", args...)
	if lines > 0 {
		l.paint(l.last, lines)
	}
}

// Erase takes the picture off, so that other lines may be written in its place.
func (l *Live) Erase() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.erase()
}

func (l *Live) paint(text string, lines int) {
	fmt.Fprintln(l.Out, text)
	l.last, l.drawn = text, lines
}

func (l *Live) erase() {
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
