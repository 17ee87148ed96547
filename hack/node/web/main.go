// Command web is the workload of tests on real machines. The command prints a line, serves the same line on port
// 8080, and ends on a signal.
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	host, err := os.Hostname()
	if err != nil {
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(1)
	}
	line := "web runs in " + host
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, line) })
	failed := make(chan error, 1)
	go func() { failed <- http.ListenAndServe(":8080", nil) }() //nolint:gosec // only tests connect
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	fmt.Println(line)
	select {
	case err := <-failed:
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(1)
	case s := <-signals:
		fmt.Println("web ends by signal", s)
	}
}
