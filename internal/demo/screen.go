package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// screen shows lines that stay and, below them on a terminal, a picture that is drawn over.
type screen struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	// drawn is the picture on the screen, last the line that was printed last.
	drawn string
	last  string
}

func newScreen(out io.Writer, terminal bool) *screen { return &screen{out: out, terminal: terminal} }

// Write implements io.Writer for lines of others.
func (s *screen) Write(p []byte) (int, error) {
	s.say("%s", strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// say prints a line that stays.
func (s *screen) say(format string, args ...any) {
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
		s.draw(now.table())
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
