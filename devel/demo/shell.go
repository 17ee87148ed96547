package demo

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"machinist.dev/machinist/devel/stack"
)

// shellInstructions writes a file that configures a shell for the stack, and returns the instructions for it.
func shellInstructions(s *stack.Stack) (string, error) {
	programs := map[string]string{"kubectl": s.Control.Kubectl(), "machinist": machinist()}
	variables := []string{"KUBECONFIG=" + s.Control.Kubeconfig()}
	ofCloud, more := s.Shell()
	maps.Copy(programs, ofCloud)
	path, err := writeShellFile(s.Dir(), programs, append(variables, more...))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("\nThere is no fleet yet. Configure another terminal for the cluster and the cloud, then follow the\n"+
		"guide in docs/get-started or docs/by-hand.md:\n\n  . %s\n%s"+
		"\nLogs are in %s. Ctrl-C ends everything.\n", path, locations(s), s.Dir()), nil
}

// writeShellFile writes a shell script that sets environment variables of the form "name=value" and adds the programs
// to PATH. It returns the path of the script.
func writeShellFile(dir string, programs map[string]string, variables []string) (string, error) {
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		return "", err
	}
	for name, path := range programs {
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			return "", err
		}
	}
	var text strings.Builder
	for _, variable := range variables {
		name, value, _ := strings.Cut(variable, "=")
		fmt.Fprintf(&text, "export %s=%s\n", name, shellQuote(value))
	}
	fmt.Fprintf(&text, "export PATH=%s:\"$PATH\"\n", shellQuote(bin))
	path := filepath.Join(dir, "env.sh")
	return path, os.WriteFile(path, []byte(text.String()), 0o600)
}

// shellQuote quotes a text, so that a shell reads it as one word.
func shellQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
