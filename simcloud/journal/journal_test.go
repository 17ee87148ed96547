package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func open(t *testing.T, dir string) *Journal {
	t.Helper()
	j, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// kill closes the files as if the process had been killed.
func (j *Journal) kill() {
	j.file.Close()
	j.lock.Close()
}

func commit(t *testing.T, j *Journal, ops ...Op) {
	t.Helper()
	if err := j.Commit(ops...); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, j *Journal) string {
	t.Helper()
	var all []string
	for key := range j.Keys() {
		var value string
		if ok, err := j.Get(key, &value); !ok || err != nil {
			t.Fatalf("get %s: %v %v", key, ok, err)
		}
		all = append(all, key+"="+value)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestCommitsSurviveDeath(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	commit(t, j, Op{"a", "1"}, Op{"b", "2"})
	commit(t, j, Op{"a", "3"}, Op{"c", "x\ny"})
	commit(t, j, Op{"b", nil})
	j.kill()
	j = open(t, dir)
	defer j.Close()
	if got := content(t, j); got != "a=3 c=x\ny" {
		t.Errorf("got %q", got)
	}
	if ok, err := j.Get("b", new(string)); ok || err != nil {
		t.Errorf("deleted key: %v %v", ok, err)
	}
}

// A file that is cut at any byte contains the state after a complete commit.
func TestUnfinishedCommitIsDropped(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	commit(t, j, Op{"a", "1"})
	before := j.size
	commit(t, j, Op{"a", "2"}, Op{"b", "2"}, Op{"c", "2"})
	j.kill()
	whole, err := os.ReadFile(j.path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := before; cut <= int64(len(whole)); cut++ {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "journal.jsonl"), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		want := "a=1"
		if cut == int64(len(whole)) {
			want = "a=2 b=2 c=2"
		}
		j := open(t, dir)
		if got := content(t, j); got != want {
			t.Fatalf("cut at %d: got %q, expected %q", cut, got, want)
		}
		commit(t, j, Op{"d", "4"})
		j.kill()
		j = open(t, dir)
		if got := content(t, j); got != want+" d=4" {
			t.Fatalf("after a cut at %d and another commit: got %q", cut, got)
		}
		j.kill()
	}
}

func TestDamageInTheMiddleIsReported(t *testing.T) {
	dir := t.TempDir()
	text := `{"k":"a","v":"1"}` + "\n" + `{"k":"b",` + "\n" + `{"k":"c","v":"1"}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "journal.jsonl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v", err)
	}
}

func TestOnlyOneProcessOpensJournal(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	if _, err := Open(dir); err == nil {
		t.Error("opened twice")
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Commit(Op{"a", "1"}); err == nil {
		t.Error("committed after Close")
	}
	open(t, dir).Close()
}

func TestCompactionKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	big := strings.Repeat("x", 1<<20)
	compacted := false
	for i := range 40 {
		size := j.size
		commit(t, j, Op{"big", big}, Op{fmt.Sprint("k", i), fmt.Sprint(i)})
		compacted = compacted || j.size < size
	}
	if !compacted || j.size > 2*compactAbove {
		t.Errorf("the file has %d bytes after 40 MiB of garbage", j.size)
	}
	want := content(t, j)
	j.kill()
	j = open(t, dir)
	defer j.Close()
	if got := content(t, j); got != want || !strings.Contains(got, "k39=39") || !strings.Contains(got, "k0=0") {
		t.Error("the content changed")
	}
}

// Compaction removes the field "more" from each line. A value that contains a field "more" must stay unchanged.
func TestCompactionSeparatesLines(t *testing.T) {
	j := open(t, t.TempDir())
	tricky := map[string]any{"a": 1, "more": true}
	commit(t, j, Op{"x", tricky}, Op{"y", tricky}, Op{"z", "plain"})
	if err := j.compact(); err != nil {
		t.Fatal(err)
	}
	j.kill()
	text, err := os.ReadFile(j.path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	slices.Sort(lines)
	if got := strings.Join(lines,
		" "); got != `{"k":"x","v":{"a":1,"more":true}} {"k":"y","v":{"a":1,"more":true}} {"k":"z","v":"plain"}` {
		t.Errorf("got %s", got)
	}
}

func TestFailedWriteChangesNothing(t *testing.T) {
	j := open(t, t.TempDir())
	commit(t, j, Op{"a", "1"})
	if err := j.Commit(Op{"a", "2"}, Op{"b", func() {}}); err == nil {
		t.Error("a function was encoded")
	}
	if got := content(t, j); got != "a=1" {
		t.Errorf("got %q", got)
	}
	j.file.Close() // The next write and its removal fail.
	if err := j.Commit(Op{"a", "3"}); err == nil {
		t.Error("wrote to a closed file")
	}
	if err := j.Commit(Op{"a", "4"}); err == nil || j.broken == nil {
		t.Errorf("a commit after an uncertain write: %v", err)
	}
	j.lock.Close()
}
