package printer

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// Shorten shortens a text without color codes to the given number of columns. Less than 1 means no limit.
func Shorten(text string, columns int) string {
	if columns < 1 || Width(text) <= columns {
		return text
	}
	return string([]rune(text)[:columns-1]) + "…"
}

// ProgressPrinter prints the progress of an operation. On a terminal, the new progress overwrites the previous
// progress. If the output is not a terminal, each change is written as a new line. ProgressPrinter is safe for
// concurrent use.
type ProgressPrinter struct {
	Out      io.Writer
	Terminal bool

	mu sync.Mutex
	// drawnLines is the number of lines on the terminal. last is the text that was written last.
	drawnLines int
	last       string
}

// Draw replaces the lines of the previous picture with the lines of the new picture. If the output is not a terminal,
// Draw only writes the given line, unless the previous line was the same. The lines of a picture must not be wider than
// the terminal, because wrapped lines cannot be erased.
func (l *ProgressPrinter) Draw(picture []string, line string) {
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
	if text == l.last && l.drawnLines > 0 {
		return
	}
	l.erase()
	l.paint(text, len(picture))
}

// Printf writes a line above the picture. The picture stays below this line.
func (l *ProgressPrinter) Printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.drawnLines
	l.erase()
	fmt.Fprintf(l.Out, format+"\n", args...)
	if lines > 0 {
		l.paint(l.last, lines)
	}
}

// Erase removes the picture from the terminal.
func (l *ProgressPrinter) Erase() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.erase()
}

func (l *ProgressPrinter) paint(text string, lines int) {
	fmt.Fprintln(l.Out, text)
	l.last, l.drawnLines = text, lines
}

func (l *ProgressPrinter) erase() {
	if l.drawnLines > 0 {
		fmt.Fprintf(l.Out, "\x1b[%dA\x1b[J", l.drawnLines)
	}
	l.drawnLines = 0
}

// Bar returns a progress bar for n of total, with the given width.
func Bar(s Style, n, total int32, columns int) string {
	full, empty := "█", "░"
	if s.ASCII {
		full, empty = "#", "."
	}
	filled := columns
	if total > 0 {
		filled = int(int64(columns) * int64(max(0, min(n, total))) / int64(total))
	}
	return s.Green(strings.Repeat(full, filled)) + s.Dim(strings.Repeat(empty, columns-filled))
}
