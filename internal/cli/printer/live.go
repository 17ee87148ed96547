package printer

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// Fit cuts a text without colours to a number of columns. If the number is less than 1, there is no limit.
func Fit(text string, columns int) string {
	if columns < 1 || Visible(text) <= columns {
		return text
	}
	return string([]rune(text)[:columns-1]) + "…"
}

// Live shows changing content. On a terminal it draws over the previous picture, and elsewhere it writes a line for
// each change. Live is safe for concurrent use.
type Live struct {
	Out      io.Writer
	Terminal bool

	mu sync.Mutex
	// drawn is the number of lines of the picture on the terminal. last is the last text that was drawn or written.
	drawn int
	last  string
}

// Draw replaces the previous picture by another one. Without a terminal, Draw writes the line instead, unless it equals
// the previous one. The lines of the picture must not be wider than the terminal, because they could not be erased.
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

// Printf writes a permanent line above the picture.
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

// Erase removes the picture, so that other lines can be written in its place.
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

// Bar returns a bar of a number of columns that shows n of total.
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
