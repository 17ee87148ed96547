package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func writeModule(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "off")
	return dir
}

func TestCompileShowsProgress(t *testing.T) {
	name := t.TempDir() // unique, so that no build cache has the package
	dir := writeModule(t, map[string]string{
		"go.mod":     "module example.com/m\n\ngo 1.26.0\n",
		"main.go":    "package main\n\nimport \"example.com/m/sub\"\n\nfunc main() { sub.F() }\n",
		"sub/sub.go": "package sub\n\n// F returns " + name + ".\nfunc F() string { return \"" + name + "\" }\n",
	})
	var out bytes.Buffer
	job := compilation{label: "programs", dir: dir, packages: []string{"."}, flags: []string{"-o", "m"}}
	if err := compile(t.Context(), &screen{out: &out}, job); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "programs: compiled 2 packages in ") {
		t.Errorf("got the output %q, want the number of compiled packages", got)
	}
	if !isProgram(filepath.Join(dir, "m")) {
		t.Error("compile wrote no program")
	}
}

func TestCompileReportsCompilerErrors(t *testing.T) {
	dir := writeModule(t, map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26.0\n", "main.go": "package main\n\nfunc main() { undefined() }\n",
	})
	err := compile(t.Context(), &screen{out: &bytes.Buffer{}}, compilation{dir: dir, packages: []string{"."}})
	if err == nil || !strings.Contains(err.Error(), "main.go:3:15: undefined: undefined") {
		t.Errorf("got the error %v, want one with file and line", err)
	}
}

func TestExplainAddsAdvice(t *testing.T) {
	for output, want := range map[string]string{
		"x\nwrite /tmp/a: no space left on device":                                "free some space and run the command again",
		"go: go.mod requires go >= 1.26.0 (running go 1.21.0; GOTOOLCHAIN=local)": "too old",
		"k8s.io/api@v0.37.2: dial tcp 192.0.2.1:443: connect: network is down":    "check the network",
		"a.go:1:1: undefined: x":                                                  "a.go:1:1: undefined: x",
	} {
		if err := explain(output, errors.New("exit status 1")); !strings.Contains(err.Error(), want) {
			t.Errorf("explain(%q) = %q, want %q in it", output, err, want)
		}
	}
}

func TestProgressEstimatesTimeLeft(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	p := newProgress(&screen{out: &out, terminal: true}, "programs", map[string]int{"small": 10, "large": 30},
		func() time.Time { return now })
	if now = now.Add(10 * time.Second); !p.countPackage("small") || p.countPackage("other") || p.countPackage("small") {
		t.Error("countPackage must count each package of the build once, and no other line")
	}
	if want := "programs: compiled 1 of 2 packages, about 30 s left"; p.line(now) != want {
		t.Errorf("line() = %q, want %q", p.line(now), want)
	}
	p.countPackage("large")
	if want := "programs: compiled 2 of 2 packages, linking"; p.line(now) != want {
		t.Errorf("line() = %q, want %q", p.line(now), want)
	}
	if now = now.Add(3 * time.Minute); roughDuration(now.Sub(p.begun)) != "3 min" {
		t.Errorf("roughDuration = %q, want 3 min", roughDuration(now.Sub(p.begun)))
	}
	p.end()
	if want := "programs: compiled 2 packages in 3 min\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("the screen shows %q, want %q at its end", out.String(), want)
	}
}
