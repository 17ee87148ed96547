package main

import (
	"fmt"
	"strings"
)

// environmentFailures lists failures of the go command that are not errors in the code. text is a part of the
// command's output. advice tells the user how to fix the failure.
var environmentFailures = []struct {
	text, advice string
}{
	{"no space left on device", "the disk is full: free some space and run the command again; compiled packages are kept"},
	{"disk quota exceeded", "the disk quota is used up: free some space and run the command again; compiled packages are kept"},
	{"requires go >=", "this version of Go is too old: install the one that go.mod names and run the command again"},
	{"toolchain not available", "this version of Go is too old: install the one that go.mod names and run the command again"},
	{"dial tcp", "Go modules could not be downloaded: check the network or set GOPROXY, and run the command again"},
	{"no such host", "Go modules could not be downloaded: check the network or set GOPROXY, and run the command again"},
	{"i/o timeout", "Go modules could not be downloaded: check the network or set GOPROXY, and run the command again"},
	{"checksum mismatch", "a downloaded Go module is damaged: run `go clean -modcache` and then the command again"},
	{"signal: killed", "the compiler was killed, probably because memory ran out: close other programs or set GOFLAGS=-p=1, and run the command again"},
}

// explain adds advice to the error of a failed build if its output shows a known cause.
func explain(output string, err error) error {
	for _, c := range environmentFailures {
		if strings.Contains(output, c.text) {
			return fmt.Errorf("%s (%s)", c.advice, lastLine(output, c.text))
		}
	}
	if output == "" {
		return err
	}
	return fmt.Errorf("%w\n%s", err, output)
}

func lastLine(text, part string) string {
	found := ""
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			found = strings.TrimSpace(line)
		}
	}
	return found
}
