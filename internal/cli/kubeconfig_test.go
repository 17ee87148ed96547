package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machinist.dev/machinist/test/env"
)

func TestCommandWithoutCluster(t *testing.T) {
	folder := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	nothing := filepath.Join(folder, "nothing")
	empty := write("empty", "")
	unchosen := write("unchosen",
		"apiVersion: v1\nkind: Config\ncontexts:\n- {name: two, context: {cluster: x}}\n- {name: one, context: {cluster: x}}\n")
	for _, test := range []struct {
		name, flag, variable string
		message              []string
	}{
		{"a flag", nothing, env.Kubeconfig(), []string{"--kubeconfig=" + nothing + ": there is no such file"}},
		{"a variable", "", nothing, []string{"KUBECONFIG=" + nothing + ": there is no such file"}},
		{"a variable with several", "", nothing + ":" + nothing + "2", []string{"KUBECONFIG=" + nothing + ":" + nothing +
			"2: there is no such file"}},
		{"neither", "", "", []string{"there is no kubeconfig", "config does not exist", "--kubeconfig", "KUBECONFIG"}},
		{"an empty file", empty, "", []string{"--kubeconfig=" + empty + " contains no context"}},
		{"an empty file in a variable", "", empty, []string{"the kubeconfig " + empty + " contains no context"}},
		{"no current context", unchosen, "", []string{"--kubeconfig=" + unchosen + ": no context is chosen",
			"--context: one, two"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", test.variable)
			o := executeAt(t, test.flag, "", "status").fails(t, test.message...)
			if strings.Contains(o.failed.Error(), "localhost:8080") {
				t.Errorf("it connected to localhost: %v", o.failed)
			}
		})
	}
	t.Setenv("KUBECONFIG", nothing+":"+env.Kubeconfig())
	executeAt(t, "", "", "status").succeeds(t)
	t.Setenv("KUBECONFIG", nothing)
	executeAt(t, "", "", "status", "--server", "https://127.0.0.1:1").fails(t, "127.0.0.1:1 does not answer")
}
