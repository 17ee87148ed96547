package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var digestA, digestB = strings.Repeat("a1", 32), strings.Repeat("b2", 32)

func TestChecksumsHaveFormatOfSHA256Sum(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, map[string]string{"b": "2", "a": "1", "checksums.txt": "old"})
	sums, err := sumFolder(folder, "checksums.txt")
	if err != nil {
		t.Fatal(err)
	}
	write(t, folder, map[string]string{"checksums.txt": sums.String()})
	again, err := readChecksums(filepath.Join(folder, "checksums.txt"))
	if err != nil || len(again) != 2 || again["a"] != sums["a"] {
		t.Errorf("got %v and %v, want %v", again, err, sums)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "checksums.txt")
	check.Dir = folder
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestInvalidChecksumsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "",
		digestA + "  a\n":                       "",
		digestA + " *a b\r\n" + digestB + "  c": "",
		"a\n":                                   "line 1 is not a digest",
		digestA + "  \n":                        "line 1 is not a digest",
		digestA + " a\n":                        "line 1 is not a digest",
		digestA[2:] + "  a\n":                   "is not a SHA-256 digest",
		digestA + "  a\nxyz  b\n":               `line 2: "xyz" is not a SHA-256 digest`,
		digestA + "  a\n" + digestB + "  a\n":   "line 2 names a again",
	} {
		_, err := parseChecksums(text)
		expectError(t, text, err, want)
	}
}

func TestComparisonNamesEveryDifference(t *testing.T) {
	want := checksums{"same": digestA, "changed": digestA, "missing": digestA}
	err := want.compare(checksums{"same": digestA, "changed": digestB, "extra": digestB})
	expected := "changed has the digest " + digestB + ", want " + digestA + "\nmissing is missing\nextra is unexpected"
	if err == nil || err.Error() != expected {
		t.Errorf("got %v, want %s", err, expected)
	}
	expectError(t, "the same", want.compare(want), "")
}

func TestArchivesContainFilesAndAreReproducible(t *testing.T) {
	files := []packed{{"machinist", 0o755, []byte("program")}, {"LICENSE", 0o644, []byte("licence")}}
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for _, name := range []string{"a.tar.gz", "a.zip"} {
		folder := t.TempDir()
		var contents [][]byte
		for _, path := range []string{filepath.Join(folder, name), filepath.Join(folder, "again-"+name)} {
			if err := pack(path, files, at); err != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			contents = append(contents, content)
		}
		if !bytes.Equal(contents[0], contents[1]) {
			t.Errorf("%s: two archives of the same files differ", name)
		}
		got, err := unpack(filepath.Join(folder, name))
		if err != nil || len(got) != 2 {
			t.Fatalf("%s: got %v and %v", name, got, err)
		}
		for i, f := range got {
			if f.name != files[i].name || f.mode.Perm() != files[i].mode || !bytes.Equal(f.content, files[i].content) {
				t.Errorf("%s: got %v, want %v", name, f, files[i])
			}
		}
		if err := os.WriteFile(filepath.Join(folder, name), contents[0][:len(contents[0])/2], 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := unpack(filepath.Join(folder, name)); err == nil {
			t.Errorf("%s: half an archive was unpacked", name)
		}
	}
}
