package demo

import (
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"machinist.dev/machinist/internal/cli/printer"
)

// screen shows lines that stay and, below them on a terminal, a picture that is drawn over.
type screen struct{ *printer.Live }

func newScreen(out io.Writer, terminal bool) *screen {
	return &screen{&printer.Live{Out: out, Terminal: terminal}}
}

// size returns the size of the terminal, a usual one where it does not tell.
func (s *screen) size() size {
	if f, ok := s.Out.(*os.File); ok {
		if columns, rows, err := term.GetSize(int(f.Fd())); err == nil && columns > 20 && rows > 5 {
			return size{columns, rows}
		}
	}
	return size{80, 24}
}

// Write implements io.Writer for lines of others.
func (s *screen) Write(p []byte) (int, error) {
	s.Printf("%s", strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// show draws the fleet: its machines on a terminal, elsewhere how many there are.
func (s *screen) show(now snapshot) {
	s.Draw(now.table(s.size(), time.Now()), "   "+now.line())
}
