package history

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/journal"
)

type record struct {
	Instance simcloud.Instance `json:"instance"`
}

func instanceOp(id string, state simcloud.InstanceState) journal.Op {
	return journal.Op{Key: "instance/" + id, Value: record{simcloud.Instance{ID: id, State: state}}}
}

func TestJournalReadsEachCommittedStateOnce(t *testing.T) {
	dir := t.TempDir()
	w, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	j := OpenJournal(dir)
	commit := func(ops ...journal.Op) {
		t.Helper()
		if err := w.Commit(ops...); err != nil {
			t.Fatal(err)
		}
	}
	requireRead := func(want ...string) {
		t.Helper()
		var got []string
		if err := j.Read(func(in simcloud.Instance) { got = append(got, fmt.Sprint(in.ID, " ", in.State)) }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	commit(journal.Op{Key: "meta", Value: map[string]int{"created": 1}}, journal.Op{Key: "userdata/a", Value: []byte("x")},
		instanceOp("a", simcloud.StatePending))
	commit(instanceOp("b", simcloud.StatePending))
	requireRead("a pending", "b pending")
	requireRead()
	commit(instanceOp("a", simcloud.StateRunning))
	commit(instanceOp("a", simcloud.StateTerminated))
	commit(journal.Op{Key: "instance/b"})
	requireRead("a running", "a terminated")

	// A reader of the journal must skip a commit that is not completely written.
	file, err := os.OpenFile(filepath.Join(dir, "journal.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, part := range []struct{ text, read string }{
		{`{"k":"meta","v":1,"more":true}` + "\n" + `{"k":"instance/c","v":{"instance":{"id":"c",`, ""},
		{`"state":"running"}},"more":true}` + "\n", ""},
		{`{"k":"userdata/c","v":"eA=="}` + "\n", "c running"},
		{`{"k":"instance/d","v":{"instance":{"id":"d","state":"pending"}},"more":true}` + "\n" +
			`{"k":"meta","v":2,"more":true}` + "\n", ""},
		{`{"k":"userdata/d","v":"eA=="}` + "\n", "d pending"},
	} {
		if _, err := file.WriteString(part.text); err != nil {
			t.Fatal(err)
		}
		if part.read == "" {
			requireRead()
		} else {
			requireRead(part.read)
		}
	}
}

func TestReplacedJournalIsReadFromItsBeginning(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal.jsonl")
	line := func(id, state string) string {
		return fmt.Sprintf(`{"k":"instance/%s","v":{"instance":{"id":%q,"state":%q}}}`+"\n", id, id, state)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(path, line("a", "pending"))
	j := OpenJournal(dir)
	var got []string
	read := func() {
		t.Helper()
		if err := j.Read(func(in simcloud.Instance) { got = append(got, fmt.Sprint(in.ID, " ", in.State)) }); err != nil {
			t.Fatal(err)
		}
	}
	read()
	write(path, line("a", "pending")+line("a", "running"))
	write(path+".new", line("a", "running")+line("b", "pending"))
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	read()
	if want := []string{"a pending", "a running", "a running", "b pending"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
