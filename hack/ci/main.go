// Command ci runs make targets one after the other. At the end, it prints a table with the time, the processor time and
// the test counts of each target.
//
//	go run ./hack/ci                       run the targets that every change must pass (.ci/targets)
//	go run ./hack/ci -targets .ci/nightly -part 1/3 -results dist/nightly
//	go run ./hack/ci -targets .ci/nightly -table -results dist/nightly    print the table of the results in a folder
//
// The command fails if a target fails, or if the minutes of all targets exceed the limit. It also fails if a test is
// skipped without an entry in .ci/skips. With -results, it merges the results of several runs on the same commit
// into one table. When all targets have results, it fails if a test was not executed that the inventory of
// test/fidelity lists for them. With -table, it also fails if a target has no result.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ci:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	targetFile := flag.String("targets", ".ci/targets", "file with the targets and the minutes that each may take")
	skipFile := flag.String("skips", ".ci/skips", "file with the tests that may be skipped")
	limit := flag.Float64("limit", 35, "minutes that the targets of one part may take together")
	partFlag := flag.String("part", "1/1", "part of the targets to run, such as 2/3")
	tableOnly := flag.Bool("table", false, "print the table of the results without running targets")
	folder := flag.String("results", "", "folder that collects the results of several parts")
	flag.Parse()

	all, err := readTargets(*targetFile)
	if err != nil {
		return err
	}
	var targets []target
	if !*tableOnly {
		if targets, err = partOf(all, *partFlag, *limit); err != nil {
			return err
		}
	}
	skips, err := readSkips(*skipFile)
	if err != nil {
		return err
	}
	if *folder == "" {
		if *folder, err = os.MkdirTemp("", "machinist-ci-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(*folder) }()
	} else if err := os.MkdirAll(*folder, 0o755); err != nil {
		return err
	}
	commit, err := commitOf(ctx)
	if err != nil {
		return err
	}
	var failed []string
	for _, t := range targets {
		r, err := t.run(ctx, *folder)
		if err != nil {
			return err
		}
		r.Commit = commit
		r.Unexpected = skips.unexpectedSkips(r.Skipped, slices.Contains(t.args, "FULL=1"))
		if r.Failure != "" || len(r.Unexpected) > 0 {
			failed = append(failed, t.name)
		}
		if err := r.save(*folder); err != nil {
			return err
		}
		if r.Failure != "" && *partFlag == "1/1" {
			break // report the failure without delay
		}
	}
	results, err := loadResults(*folder, commit)
	if err != nil {
		return err
	}
	printTable(os.Stdout, results)
	if len(failed) > 0 {
		return errors.New("failed: " + strings.Join(failed, ", "))
	}
	if without := targetsWithout(results, all); len(without) > 0 {
		if *tableOnly {
			return errors.New("no result of the targets " + strings.Join(without, ", "))
		}
		return nil // Another part runs these targets.
	}
	if missing := missingTests(results, filepath.Base(*targetFile) == "nightly"); len(missing) > 0 {
		return fmt.Errorf("the targets in %s did not execute these tests, which the inventory of test/fidelity lists for "+
			"them: %s", *targetFile, strings.Join(missing, ", "))
	}
	return nil
}

// targetsWithout returns the names of the targets that have no result.
func targetsWithout(results []*result, targets []target) (names []string) {
	for _, t := range targets {
		if !slices.ContainsFunc(results, func(r *result) bool { return r.Target == t.name }) {
			names = append(names, t.name)
		}
	}
	return names
}

// commitOf returns the current commit, with the suffix -dirty if the working tree has changes.
func commitOf(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output()
	if err != nil {
		return "", fmt.Errorf("find the commit: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func resultPath(folder, target string) string {
	return filepath.Join(folder, strings.ReplaceAll(target, "/", "_")+".json")
}
