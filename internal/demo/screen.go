package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// screen shows lines that stay and, below them on a terminal, a picture that is drawn over.
type screen struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	// size of the terminal now.
	size func() size
	// drawn is the picture on the screen, last the line that was printed last.
	drawn string
	last  string
}

func newScreen(out io.Writer, terminal bool) *screen {
	return &screen{out: out, terminal: terminal, size: func() size { return sizeOf(out) }}
}

// sizeOf returns the size of a terminal, a usual one where it does not tell.
func sizeOf(out io.Writer) size {
	if f, ok := out.(*os.File); ok {
		if columns, rows, err := term.GetSize(int(f.Fd())); err == nil && columns > 20 && rows > 5 {
			return size{columns, rows}
		}
	}
	return size{80, 24}
}

// Write implements io.Writer for lines of others.
func (s *screen) Write(p []byte) (int, error) {
	s.printf("%s", strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// printf prints a line that stays.
func (s *screen) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	picture := s.drawn
	s.erase()
	fmt.Fprintf(s.out, format+"\n", args...)
	if picture != "" {
		s.paint(picture)
	}
}

// show draws the fleet: its machines on a terminal, elsewhere how many there are.
func (s *screen) show(now snapshot) {
	if s.terminal {
		s.draw(now.table(s.size(), time.Now()))
	} else {
		s.draw("   " + now.line())
	}
}

// draw replaces the picture. Where there is no terminal it prints the picture's first line, if that is news.
func (s *screen) draw(picture string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.terminal {
		if line, _, _ := strings.Cut(picture, "\n"); line != s.last {
			s.last = line
			fmt.Fprintln(s.out, line)
		}
		return
	}
	if picture != s.drawn {
		s.erase()
		s.paint(picture)
	}
}

func (s *screen) paint(picture string) {
	fmt.Fprint(s.out, picture)
	s.drawn = picture
}

// erase moves up over the picture and clears from there.
func (s *screen) erase() {
	if s.drawn != "" {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", strings.Count(s.drawn, "\n"))
		s.drawn = ""
	}
}
