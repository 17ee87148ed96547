package auditlog

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// Log reads an audit log from a certain position. A Log must not be used concurrently, but several Logs can read the
// same file.
type Log struct {
	path   string
	offset int64 // position in the file, always at the beginning of a line
}

// Open returns a Log that reads a file from its beginning.
func Open(path string) (*Log, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	return &Log{path: path}, nil
}

// Mark records the end of the log as the position where later calls of Count and Take start to read.
func (l *Log) Mark() error {
	end, err := l.lines(func([]byte) error { return nil })
	if err != nil {
		return err
	}
	l.offset = end
	return nil
}

// Filter selects requests. The zero value selects all requests.
type Filter struct {
	// Users contains the names of the users whose requests are selected. An empty list selects all users.
	Users []string

	// Match selects the requests for which it returns true. Nil selects all requests.
	Match func(Request) bool
}

func (f Filter) matches(r Request) bool {
	return (len(f.Users) == 0 || slices.Contains(f.Users, r.User)) && (f.Match == nil || f.Match(r))
}

// Count returns how many writes the API server has logged since the position of the last Mark or Take. Count does not
// move this position.
func (l *Log) Count(f Filter) (Counts, error) {
	counts := Counts{ByCall: map[Call]int{}}
	err := l.each(f, func(r Request) { counts.add(r) })
	return counts, err
}

// Requests returns all requests since the position of the last Mark or Take, including reads, in the order in which
// they were answered.
func (l *Log) Requests(f Filter) ([]Request, error) {
	var requests []Request
	err := l.each(f, func(r Request) { requests = append(requests, r) })
	return requests, err
}

// Take returns the same requests as Requests, and records their end as the position where later calls start to read.
// Repeated calls return each request exactly once.
func (l *Log) Take(f Filter) ([]Request, error) {
	var requests []Request
	end, err := l.scan(f, func(r Request) { requests = append(requests, r) })
	if err == nil {
		l.offset = end
	}
	return requests, err
}

func (l *Log) each(f Filter, use func(Request)) error {
	_, err := l.scan(f, use)
	return err
}

// scan passes each selected request after l.offset to the callback. It returns the offset at which the last complete
// line ends.
func (l *Log) scan(f Filter, use func(Request)) (end int64, err error) {
	return l.lines(func(line []byte) error {
		request, ok, err := parse(line)
		if err == nil && ok && f.matches(request) {
			use(request)
		}
		return err
	})
}

// lines passes each complete line after l.offset to the callback. It returns the offset at which the last complete line
// ends. While a line has no newline, the API server is still writing it.
func (l *Log) lines(use func(line []byte) error) (end int64, err error) {
	file, err := os.Open(l.path)
	if err != nil {
		return 0, fmt.Errorf("read audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(l.offset, io.SeekStart); err != nil {
		return 0, fmt.Errorf("read audit log from byte %d: %w", l.offset, err)
	}
	end = l.offset
	for reader := bufio.NewReaderSize(file, 1<<16); ; {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return 0, fmt.Errorf("read audit log: %w", err)
		}
		if err := use(line); err != nil {
			return 0, err
		}
		end += int64(len(line))
	}
}
