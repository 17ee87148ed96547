package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// A screen is where progress is shown.
type screen struct {
	out io.Writer
	// terminal is whether a line can be written over.
	terminal bool
	// width is the length of the line that the next one has to cover.
	width int
}

func newScreen(f *os.File) *screen {
	return &screen{out: f, terminal: term.IsTerminal(int(f.Fd()))}
}

// say prints a line that stays.
func (s *screen) say(format string, args ...any) {
	s.clear()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// show prints a line that the next one replaces on a terminal.
func (s *screen) show(line string) {
	if !s.terminal {
		fmt.Fprintln(s.out, line)
		return
	}
	fmt.Fprintf(s.out, "\r%-*s", s.width, line)
	s.width = len(line)
}

func (s *screen) clear() {
	if s.width > 0 {
		fmt.Fprintf(s.out, "\r%s\r", strings.Repeat(" ", s.width))
		s.width = 0
	}
}

// progress counts the packages of one build. The time left is estimated from the number of Go files, because packages
// differ a hundredfold in size.
type progress struct {
	screen *screen
	label  string
	now    func() time.Time

	stale             map[string]int
	compiled, total   int
	files, totalFiles int
	begun, shown      time.Time
}

// Progress is shown at most this often on a terminal, and otherwise.
const (
	terminalInterval = 200 * time.Millisecond
	logInterval      = 30 * time.Second
)

// estimateAfter is the fraction of the files, one twentieth, after which an estimate of the time left is worth showing.
const estimateAfter = 20

func newProgress(s *screen, label string, stale map[string]int, now func() time.Time) *progress {
	p := &progress{screen: s, label: label, stale: stale, total: len(stale), now: now, begun: now()}
	for _, files := range stale {
		p.totalFiles += files
	}
	if p.total > 0 {
		s.say("%s: %d packages to compile", label, p.total)
	}
	return p
}

// started reports whether line names a package of the build, whose compilation begins.
func (p *progress) started(line string) bool {
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
		p.screen.show(p.line(now))
	}
	return true
}

// line says how far the build is.
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
	return text + ", about " + roughly(left) + " left"
}

func (p *progress) end() {
	p.screen.clear()
	if p.total > 0 {
		// Fewer than announced where a package that depends on a changed one turned out to be the same.
		p.screen.say("%s: compiled %d packages in %s", p.label, p.compiled, roughly(p.now().Sub(p.begun)))
	}
}

// roughly returns a duration in the unit that a person would use.
func roughly(d time.Duration) string {
	if d < 90*time.Second {
		return fmt.Sprintf("%d s", int(d.Seconds()+0.5))
	}
	return fmt.Sprintf("%d min", int(d.Minutes()+0.5))
}
