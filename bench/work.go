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

const (
	passesCounted = "controller_runtime_reconcile_total{"
	bytesCounted  = "go_memstats_alloc_bytes_total "
)

// workCounts contains the number of reconciles of each controller, and the bytes that the manager and the provider
// have allocated so far.
type workCounts struct {
	passes    map[string]int
	allocated float64
}

// countWork returns nil without the flag --passes, because a process that serves metrics uses more memory.
func (b *bench) countWork(ctx context.Context) (*workCounts, error) {
	if !b.passes {
		return nil, nil
	}
	done := &workCounts{passes: map[string]int{}}
	for _, p := range b.processes() {
		if err := workOf(ctx, b.stack.Metrics(p), done); err != nil {
			return nil, fmt.Errorf("metrics of %s: %w", p.Name, err)
		}
	}
	return done, nil
}

func workOf(ctx context.Context, address string, into *workCounts) error {
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
		return fmt.Errorf("unexpected status %s", response.Status)
	}
	return into.addMetrics(response.Body)
}

// addMetrics adds the metrics of one process. The number of a controller's reconciles includes all results, such as
// success and error.
func (w *workCounts) addMetrics(metrics io.Reader) error {
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		if bytes, ok := strings.CutPrefix(lines.Text(), bytesCounted); ok {
			n, err := strconv.ParseFloat(bytes, 64)
			if err != nil {
				return fmt.Errorf("read %q: %w", lines.Text(), err)
			}
			w.allocated += n
		}
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
		w.passes[name] += int(n)
	}
	return lines.Err()
}

// workBetween sets the number of reconciles and the allocated memory of the phase from two counts. It returns a text
// that describes both.
func (p *phase) workBetween(before, after *workCounts, n int) (shown string) {
	if after == nil {
		return ""
	}
	p.OwnAllocatedMiB = (after.allocated - before.allocated) / (1 << 20)
	p.Passes = map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(after.passes)) {
		if count := after.passes[name] - before.passes[name]; count > 0 {
			p.Passes[name] = count
			shown += fmt.Sprintf(", %s %d (%.2f per machine)", name, count, float64(count)/float64(n))
		}
	}
	return fmt.Sprintf("%.3f MiB allocated per machine; passes: %s", p.OwnAllocatedMiB/float64(n),
		strings.TrimPrefix(shown, ", "))
}
