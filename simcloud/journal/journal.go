// Package journal stores a map from keys to JSON documents in one append-only file. Commits survive the end of the
// process at any point. The journal does not call fsync after a commit. So if the operating system crashes, commits
// that the kernel has not written to the disk yet are lost.
//
// Each line of the file is the new value of one key. If the end of a commit is missing, the whole commit is dropped.
package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

const compactAbove = 8 << 20

// Op sets a key to a value, or deletes the key if Value is nil.
type Op struct {
	Key   string
	Value any
}

type line struct {
	Key   string          `json:"k"`
	Value json.RawMessage `json:"v,omitempty"`
	// More is true if the next line belongs to the same commit.
	More bool `json:"more,omitempty"`
}

// position locates the line with the current value of a key in the file.
type position struct {
	offset int64
	length int
}

// Journal gives access to the file while it is open. It is safe for concurrent use.
type Journal struct {
	path string
	lock *os.File

	mu   sync.Mutex
	file *os.File
	size int64
	live int64 // total size of the lines in positions
	// compactAt is the file size above which to try a compaction.
	compactAt int64
	positions map[string]position
	broken    error // error that left the end of the file in an unknown state
}

// Open opens the journal in a directory, which is created if missing. Open fails if another process has opened the
// journal, or a line other than the last is damaged.
func Open(dir string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the state directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the state directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("another process uses the state directory %s: %w", dir, err)
	}
	j := &Journal{path: filepath.Join(dir, "journal.jsonl"), lock: lock, positions: map[string]position{},
		compactAt: compactAbove}
	if err := j.load(); err != nil {
		if j.file != nil {
			j.file.Close()
		}
		lock.Close()
		return nil, err
	}
	return j, nil
}

// load finds the current value of each key. If the file ends with an unfinished commit, load removes this commit from
// the file.
func (j *Journal) load() error {
	var err error
	if j.file, err = os.OpenFile(j.path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return fmt.Errorf("open the journal: %w", err)
	}
	type located struct {
		line
		position
	}
	var commit []located
	reader := bufio.NewReaderSize(j.file, 1<<20)
	offset := int64(0)
	for number := 1; ; number++ {
		text, err := reader.ReadBytes('\n')
		if err == io.EOF {
			break // The text after the last newline is an unfinished line.
		}
		if err != nil {
			return fmt.Errorf("read the journal: %w", err)
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("the journal %s is damaged in line %d: %w", j.path, number, err)
		}
		commit = append(commit, located{l, position{offset, len(text)}})
		offset += int64(len(text))
		if !l.More {
			for _, c := range commit {
				j.put(c.Key, c.position, c.Value == nil)
			}
			commit, j.size = commit[:0], offset
		}
	}
	if err := j.file.Truncate(j.size); err != nil {
		return fmt.Errorf("remove an unfinished commit: %w", err)
	}
	return nil
}

func (j *Journal) put(key string, at position, deleted bool) {
	j.live -= int64(j.positions[key].length)
	if deleted {
		delete(j.positions, key)
		return
	}
	j.positions[key] = at
	j.live += int64(at.length)
}

// Commit applies all ops, or none if it returns an error.
func (j *Journal) Commit(ops ...Op) error {
	var buffer bytes.Buffer
	positions := make([]position, len(ops))
	for i, op := range ops {
		l := line{Key: op.Key, More: i < len(ops)-1}
		if op.Value != nil {
			value, err := json.Marshal(op.Value)
			if err != nil {
				return fmt.Errorf("encode %s: %w", op.Key, err)
			}
			l.Value = value
		}
		data, err := json.Marshal(l)
		if err != nil {
			return fmt.Errorf("encode %s: %w", op.Key, err)
		}
		positions[i] = position{int64(buffer.Len()), len(data) + 1}
		buffer.Write(data)
		buffer.WriteByte('\n')
	}

	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return j.broken
	}
	if _, err := j.file.WriteAt(buffer.Bytes(), j.size); err != nil {
		// Remove a partial commit, because the next commit would be appended to it.
		if cut := j.file.Truncate(j.size); cut != nil {
			j.broken = fmt.Errorf("the journal is not usable after a failed write: %w", cut)
		}
		return fmt.Errorf("write the journal: %w", err)
	}
	for i, op := range ops {
		positions[i].offset += j.size
		j.put(op.Key, positions[i], op.Value == nil)
	}
	j.size += int64(buffer.Len())
	if j.size > j.compactAt && j.size > 2*j.live {
		// Ignore an error of the compaction: the commit is valid, and the file is only longer than necessary. If the
		// disk is full, the next write fails.
		j.compactAt = compactAbove
		if err := j.compact(); err != nil {
			j.compactAt = 2 * j.size
		}
	}
	return nil
}

// Get decodes the value of a key into a pointer, and reports whether the key exists.
func (j *Journal) Get(key string, value any) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	at, ok := j.positions[key]
	if !ok {
		return false, nil
	}
	l, err := j.read(at)
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(l.Value, value); err != nil {
		return false, fmt.Errorf("decode %s: %w", key, err)
	}
	return true, nil
}

// Keys returns the current keys in no particular order.
func (j *Journal) Keys() iter.Seq[string] {
	j.mu.Lock()
	defer j.mu.Unlock()
	keys := make([]string, 0, len(j.positions))
	for key := range j.positions {
		keys = append(keys, key)
	}
	return func(yield func(string) bool) {
		for _, key := range keys {
			if !yield(key) {
				return
			}
		}
	}
}

func (j *Journal) read(at position) (line, error) {
	var l line
	data, err := j.readText(at)
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return l, fmt.Errorf("the journal %s is damaged at byte %d: %w", j.path, at.offset, err)
	}
	return l, nil
}

func (j *Journal) readText(at position) ([]byte, error) {
	data := make([]byte, at.length)
	if _, err := j.file.ReadAt(data, at.offset); err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	return data, nil
}

// moreEnd is the end of a line in which More is true. If More is false, the value is followed by a closing brace, so
// such a line cannot end with moreEnd.
var moreEnd = []byte(`,"more":true}` + "\n")

// compact replaces the file with a new file that contains only the current values. The old file stays until the new
// file is complete and synced. Lines are copied without decoding, because commits wait for the compaction.
func (j *Journal) compact() (err error) {
	path := j.path + ".new"
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("compact the journal: %w", err)
	}
	defer func() {
		if err != nil {
			file.Close()
			os.Remove(path)
		}
	}()
	positions := make(map[string]position, len(j.positions))
	size := int64(0)
	writer := bufio.NewWriterSize(file, 1<<20)
	for key, at := range j.positions {
		text, err := j.readText(at)
		if err != nil {
			return fmt.Errorf("compact the journal: %w", err)
		}
		if alone, more := bytes.CutSuffix(text, moreEnd); more {
			text = append(alone, "}\n"...)
		}
		positions[key] = position{size, len(text)}
		size += int64(len(text))
		_, _ = writer.Write(text) // Flush returns the error.
	}
	if err := errors.Join(writer.Flush(), file.Sync()); err != nil {
		return fmt.Errorf("compact the journal: %w", err)
	}
	if err := os.Rename(path, j.path); err != nil {
		return fmt.Errorf("compact the journal: %w", err)
	}
	j.file.Close()
	j.file, j.positions, j.size, j.live = file, positions, size, size
	return nil
}

// Close syncs the file and lets another process open the journal.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken == nil {
		j.broken = errors.New("the journal is closed")
	}
	return errors.Join(j.file.Sync(), j.file.Close(), j.lock.Close())
}
