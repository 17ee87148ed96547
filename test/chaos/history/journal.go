package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"machinist.dev/machinist/simcloud"
)

// Journal reads the journal of the simulated cloud while the cloud writes it. Only one goroutine may use a Journal at a
// time.
type Journal struct {
	path   string
	file   *os.File
	offset int64
}

// OpenJournal returns a Journal that starts at the beginning of the journal in the cloud's state directory.
func OpenJournal(dir string) *Journal { return &Journal{path: filepath.Join(dir, "journal.jsonl")} }

type entry struct {
	Key   string `json:"k"`
	Value struct {
		Instance simcloud.Instance `json:"instance"`
	} `json:"v"`
	More bool `json:"more"`
}

// Read reports every state of an instance that was committed since the last call. After the cloud has replaced the
// file, Read first finishes the old file. The new file begins with the last state of each instance.
func (j *Journal) Read(report func(simcloud.Instance)) error {
	for {
		if err := j.read(report); err != nil {
			return fmt.Errorf("read the cloud's journal %s: %w", j.path, err)
		}
		replaced, err := j.replaced()
		if err != nil || !replaced {
			return err
		}
	}
}

func (j *Journal) replaced() (bool, error) {
	now, err := os.Stat(j.path)
	if err != nil {
		return false, err
	}
	was, err := j.file.Stat()
	if err != nil || os.SameFile(was, now) {
		return false, err
	}
	err = j.file.Close()
	j.file, j.offset = nil, 0
	return true, err
}

func (j *Journal) read(report func(simcloud.Instance)) (err error) {
	if j.file == nil {
		if j.file, err = os.Open(j.path); err != nil {
			return err
		}
	}
	if _, err := j.file.Seek(j.offset, io.SeekStart); err != nil {
		return err
	}
	var commit []simcloud.Instance
	read := int64(0)
	for reader := bufio.NewReader(j.file); ; {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // The next call reads the rest of an incomplete line or commit.
		}
		if err != nil {
			return err
		}
		var e entry
		// Decode only the key first, because the type of the value depends on the key.
		if key := struct {
			Key  string `json:"k"`
			More bool   `json:"more"`
		}{}; json.Unmarshal(line, &key) == nil && !strings.HasPrefix(key.Key, "instance/") {
			e.More = key.More
		} else if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("line %.200q: %w", line, err)
		}
		read += int64(len(line))
		if e.Value.Instance.ID != "" {
			commit = append(commit, e.Value.Instance)
		}
		if !e.More {
			for _, in := range commit {
				report(in)
			}
			commit = commit[:0]
			j.offset += read
			read = 0
		}
	}
}
