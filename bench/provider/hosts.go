package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
)

// hosts reports new and deleted instances to the bench without delaying calls of the cloud.
type hosts struct{ lines chan string }

// backlog exceeds the number of parallel calls of any benchmark on one machine.
const backlog = 1 << 16

func dial(socket string) (*hosts, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("--hosts: %w", err)
	}
	h := &hosts{lines: make(chan string, backlog)}
	go func() {
		w := bufio.NewWriter(conn)
		for line := range h.lines {
			_, err := w.WriteString(line)
			if err == nil && len(h.lines) == 0 {
				err = w.Flush()
			}
			if err != nil {
				// The bench has ended. No more Nodes can join, because the bench simulates the kubelets.
				fmt.Fprintln(os.Stderr, "Error: report an instance:", err)
				os.Exit(1)
			}
		}
	}()
	return h, nil
}

func (h *hosts) report(change, providerID, node string) {
	h.lines <- change + " " + providerID + " " + node + "\n"
}
