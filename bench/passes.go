package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// passesCounted is the metric of how many passes a controller made, by controller and result.
const passesCounted = "controller_runtime_reconcile_total{"

// countPasses returns how many passes each controller of both processes made so far. Without --passes it does nothing:
// to be asked for metrics takes memory.
func (b *bench) countPasses(ctx context.Context) (map[string]int, error) {
	if !b.passes {
		return nil, nil
	}
	counted := map[string]int{}
	for _, p := range b.processes() {
		if err := passesOf(ctx, b.stack.Metrics(p), counted); err != nil {
			return nil, fmt.Errorf("metrics of %s: %w", p.Name, err)
		}
	}
	return counted, nil
}

func passesOf(ctx context.Context, address string, into map[string]int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", response.Status)
	}
	return readPasses(response.Body, into)
}

// readPasses adds the passes that metrics tell, of all results, to those of their controllers.
func readPasses(metrics io.Reader, into map[string]int) error {
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), passesCounted)
		if !ok {
			continue
		}
		labels, value, _ := strings.Cut(rest, "} ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("read %q: %w", lines.Text(), err)
		}
		_, name, _ := strings.Cut(labels, `controller="`)
		name, _, _ = strings.Cut(name, `"`)
		into[name] += int(n)
	}
	return lines.Err()
}

// passesBetween says how many passes each controller made for each machine, and keeps them.
func (p *phase) passesBetween(before, after map[string]int, n int) (shown string) {
	if after == nil {
		return ""
	}
	p.Passes = map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if made := after[name] - before[name]; made > 0 {
			p.Passes[name] = made
			shown += fmt.Sprintf(", %s %d (%.2f per machine)", name, made, float64(made)/float64(n))
		}
	}
	return "passes: " + strings.TrimPrefix(shown, ", ")
}
