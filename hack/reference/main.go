// Command reference generates reference documents from the code:
//
//	flags.md                   all flags of all processes, from the output of --help
//	timeouts.md                all durations among these flags and the fields in api.md, which hack/crds writes
//	cli.md                     the commands of machinist, from their definitions
//	conditions.md              phases, conditions and reasons, from the constants and their comments
//	labels-and-annotations.md  keys on objects and instances, from the constants and their comments
//	metrics.md                 the table of metrics, from the collectors that the processes register
//	provider-specs.md          the fields of the providerSpecs, from the Go types and their comments
//
// hack/generate.sh runs this command in the root folder of the repository. The argument is the output folder, which
// must already contain api.md.
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
	flags, err := flagSections(root)
	if err != nil {
		return fmt.Errorf("flags.md: %w", err)
	}
	fields, err := os.ReadFile(filepath.Join(out, "api.md"))
	if err != nil {
		return err
	}
	return errors.Join(
		write(out, "flags.md", func() ([]byte, error) { return renderFlags(flags), nil }),
		write(out, "timeouts.md", func() ([]byte, error) { return timeoutsDocument(string(fields), flags) }),
		write(out, "cli.md", commandsDocument),
		write(out, "conditions.md", func() ([]byte, error) { return conditionsDocument(root) }),
		write(out, "labels-and-annotations.md", func() ([]byte, error) { return keysDocument(root) }),
		write(out, "metrics.md", func() ([]byte, error) { return metricsDocument(root) }),
		write(out, "provider-specs.md", func() ([]byte, error) { return specsDocument(root) }),
	)
}

func write(folder, name string, document func() ([]byte, error)) error {
	text, err := document()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return os.WriteFile(filepath.Join(folder, name), text, 0o644)
}
