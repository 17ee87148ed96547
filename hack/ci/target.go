package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// target is a call of make with a time limit in minutes.
type target struct {
	name    string
	minutes float64
	args    []string
}

// readTargets reads the targets from a file. Each line contains the name of a target, its time limit in minutes, and
// the arguments of make. A line without arguments calls make with the name of the target. Lines that begin with # are
// comments.
func readTargets(path string) ([]target, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var targets []target
	for i, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) == 1 {
			return nil, fmt.Errorf("%s:%d: %s has no minutes", path, i+1, fields[0])
		}
		minutes, err := strconv.ParseFloat(fields[1], 64)
		if err != nil || minutes <= 0 {
			return nil, fmt.Errorf("%s:%d: %q is not a number of minutes", path, i+1, fields[1])
		}
		t := target{name: fields[0], minutes: minutes, args: fields[2:]}
		if len(t.args) == 0 {
			t.args = []string{t.name}
		}
		targets = append(targets, t)
	}
	if len(targets) == 0 {
		return nil, fmt.Errorf("%s contains no targets", path)
	}
	return targets, nil
}

// partOf divides the targets into n parts and returns part k, in the order of the file. The longest targets are
// assigned first, each to the shortest part. If a part exceeds the limit, it returns an error.
func partOf(targets []target, part string, limit float64) ([]target, error) {
	var k, n int
	if _, err := fmt.Sscanf(part, "%d/%d", &k, &n); err != nil || k < 1 || k > n {
		return nil, fmt.Errorf("invalid part %q: it must be a part such as 2/3", part)
	}
	byLength := slices.SortedStableFunc(slices.Values(targets), func(a, b target) int {
		switch {
		case a.minutes > b.minutes:
			return -1
		case a.minutes < b.minutes:
			return 1
		}
		return 0
	})
	sums, chosen := make([]float64, n), map[string]bool{}
	for _, t := range byLength {
		shortest := slices.Index(sums, slices.Min(sums))
		sums[shortest] += t.minutes
		if shortest == k-1 {
			chosen[t.name] = true
		}
	}
	if longest := slices.Max(sums); longest > limit {
		return nil, fmt.Errorf("the targets of one part may take %g minutes, more than the limit of %g: "+
			"shorten a target or use more parts", longest, limit)
	}
	return slices.DeleteFunc(slices.Clone(targets), func(t target) bool { return !chosen[t.name] }), nil
}

// run calls make and shows its output. hack/gotest.sh writes the test results into files.
func (t target) run(ctx context.Context, folder string) (*result, error) {
	fmt.Printf("== make %s\n", strings.Join(t.args, " "))
	records, err := os.MkdirTemp(folder, "tests-")
	if err != nil {
		return nil, err
	}
	if records, err = filepath.Abs(records); err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(records) }()
	gotest, err := filepath.Abs("hack/gotest.sh")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "make", t.args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(os.Environ(), "GOTEST="+gotest+" --format pkgname --", "TEST_RECORDS="+records)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout // Scripts that print a path report skipped checks on stderr.
	r := &result{Target: t.name, Minutes: t.minutes}
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run make: %w", err)
	}
	r.Notes = notesOf(io.TeeReader(out, os.Stdout))
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		r.Failure = exit.String()
	case err != nil:
		return nil, fmt.Errorf("run make: %w", err)
	}
	r.Wall = time.Since(begun)
	r.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return r, r.count(records)
}

// notesOf finds the lines about skipped checks, such as "SKIPPED: there is no network".
func notesOf(from io.Reader) (notes []string) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if reason, ok := strings.CutPrefix(lines.Text(), "SKIPPED: "); ok {
			notes = append(notes, reason)
		}
	}
	_, _ = io.Copy(io.Discard, from) // After a line that is too long, make must not block on a full pipe.
	return notes
}
