package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

type screen struct {
	out io.Writer
	// terminal is true if lines can be overwritten.
	terminal bool
	// width is the length of the current line, which the next line must overwrite.
	width int
}

func newScreen(f *os.File) *screen {
	return &screen{out: f, terminal: term.IsTerminal(int(f.Fd()))}
}

// print writes a line that later output does not overwrite.
func (s *screen) print(format string, args ...any) {
	s.clearLine()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// update prints a line that the next line overwrites on a terminal.
func (s *screen) update(line string) {
	if !s.terminal {
		fmt.Fprintln(s.out, line)
		return
	}
	fmt.Fprintf(s.out, "\r%-*s", s.width, line)
	s.width = len(line)
}

func (s *screen) clearLine() {
	if s.width > 0 {
		fmt.Fprintf(s.out, "\r%s\r", strings.Repeat(" ", s.width))
		s.width = 0
	}
}

// progress counts the compiled packages of a build. The weight of a package is its number of Go files, because the
// sizes of packages differ by a factor of a hundred.
type progress struct {
	screen *screen
	label  string
	now    func() time.Time

	stale             map[string]int
	compiled, total   int
	files, totalFiles int
	begun, shown      time.Time
}

const (
	terminalInterval = 200 * time.Millisecond
	logInterval      = 30 * time.Second
)

// estimateAfter delays the first estimate of the remaining time until 1/20 of the files are compiled.
const estimateAfter = 20

func newProgress(s *screen, label string, stale map[string]int, now func() time.Time) *progress {
	p := &progress{screen: s, label: label, stale: stale, total: len(stale), now: now, begun: now()}
	for _, files := range stale {
		p.totalFiles += files
	}
	if p.total > 0 {
		s.print("%s: %d packages to compile", label, p.total)
	}
	return p
}

// countPackage counts a package of this build when its name appears as a line of output. For other lines, countPackage
// returns false.
func (p *progress) countPackage(line string) bool {
	files, ok := p.stale[line]
	if !ok {
		return false
	}
	delete(p.stale, line)
	p.compiled++
	p.files += files
	interval := logInterval
	if p.screen.terminal {
		interval = terminalInterval
	}
	if now := p.now(); now.Sub(p.shown) >= interval {
		p.shown = now
		p.screen.update(p.line(now))
	}
	return true
}

func (p *progress) line(now time.Time) string {
	text := fmt.Sprintf("%s: compiled %d of %d packages", p.label, p.compiled, p.total)
	if p.files == p.totalFiles {
		return text + ", linking"
	}
	if p.files*estimateAfter < p.totalFiles {
		return text
	}
	elapsed := now.Sub(p.begun)
	left := time.Duration(float64(elapsed) * float64(p.totalFiles-p.files) / float64(p.files))
	return text + ", about " + roughDuration(left) + " left"
}

func (p *progress) end() {
	p.screen.clearLine()
	if p.total > 0 {
		// Go does not compile a package again if the output of its recompiled imports did not change. So the number of
		// compiled packages may be lower than expected.
		p.screen.print("%s: compiled %d packages in %s", p.label, p.compiled, roughDuration(p.now().Sub(p.begun)))
	}
}

// roughDuration uses seconds below 90 seconds, and minutes otherwise.
func roughDuration(d time.Duration) string {
	if d < 90*time.Second {
		return fmt.Sprintf("%d s", int(d.Seconds()+0.5))
	}
	return fmt.Sprintf("%d min", int(d.Minutes()+0.5))
}
