package demo

import (
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"machinist.dev/machinist/internal/cli/printer"
)

// screen prints permanent lines. On a terminal, it also prints a picture below these lines, and overwrites it with each
// new picture.
type screen struct{ *printer.ProgressPrinter }

func newScreen(out io.Writer, terminal bool) *screen {
	return &screen{&printer.ProgressPrinter{Out: out, Terminal: terminal}}
}

// size returns the size of the terminal, or 80 x 24 if it is unknown.
func (s *screen) size() size {
	if f, ok := s.Out.(*os.File); ok {
		if columns, rows, err := term.GetSize(int(f.Fd())); err == nil && columns > 20 && rows > 5 {
			return size{columns, rows}
		}
	}
	return size{80, 24}
}

// Write implements io.Writer, so that other packages can print lines on the screen.
func (s *screen) Write(p []byte) (int, error) {
	s.Printf("%s", strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// show draws the machines of the fleet on a terminal. On other outputs, it prints the number of machines.
func (s *screen) show(now snapshot) {
	s.Draw(now.table(s.size(), time.Now()), "   "+now.summary())
}
