package main

import (
	"fmt"
	"strings"
)

// causes are failures of the go command that have nothing to do with the code, by a part of what it prints.
var causes = []struct {
	text, advice string
}{
	{"no space left on device", "the disk is full: free some space and run the command again; what was compiled is kept"},
	{"disk quota exceeded", "the disk quota is used up: free some space and run the command again; what was compiled is kept"},
	{"requires go >=", "this version of Go is too old: install the one that go.mod names and run the command again"},
	{"toolchain not available", "this version of Go is too old: install the one that go.mod names and run the command again"},
	{"dial tcp", "Go modules could not be downloaded: check the network or set GOPROXY, and run the command again"},
	{"no such host", "Go modules could not be downloaded: check the network or set GOPROXY, and run the command again"},
	{"i/o timeout", "Go modules could not be downloaded: check the network or set GOPROXY, and run the command again"},
	{"checksum mismatch", "a downloaded Go module is damaged: run `go clean -modcache` and then the command again"},
	{"signal: killed", "the compiler was killed, probably for lack of memory: close other programs or set GOFLAGS=-p=1, and run the command again"},
}

// explain returns what to do about a failed build, after what the go command printed.
func explain(output string, err error) error {
	for _, c := range causes {
		if strings.Contains(output, c.text) {
			return fmt.Errorf("%s (%s)", c.advice, lastLine(output, c.text))
		}
	}
	if output == "" {
		return err
	}
	return fmt.Errorf("%w\n%s", err, output)
}

// lastLine returns the last line of a text that contains part.
func lastLine(text, part string) string {
	found := ""
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			found = strings.TrimSpace(line)
		}
	}
	return found
}
