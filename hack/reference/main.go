// Command reference generates reference documents from the code:
//
//	flags.md       all flags of all processes, from the output of --help
//	conditions.md  phases, conditions and reasons, from the constants and their comments
//	metrics.md     the table of metrics, from the collectors that the processes register
//
// hack/generate.sh calls it in the root folder of the repository, with the folder to write to.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: reference <folder of the documents>")
		os.Exit(2)
	}
	logf.SetLogger(logr.Discard())
	if err := run(".", os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run(root, out string) error {
	return errors.Join(
		write(out, "flags.md", func() ([]byte, error) { return flagsDocument(root) }),
		write(out, "conditions.md", func() ([]byte, error) { return conditionsDocument(root) }),
		write(out, "metrics.md", func() ([]byte, error) { return metricsDocument(root) }),
	)
}

func write(folder, name string, document func() ([]byte, error)) error {
	text, err := document()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return os.WriteFile(filepath.Join(folder, name), text, 0o644)
}
