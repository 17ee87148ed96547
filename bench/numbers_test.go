package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/devel/controlplane/auditlog"
)

func TestExponent(t *testing.T) {
	x := []float64{300, 1000, 3000, 5000}
	for want, f := range map[float64]func(float64) float64{
		0:   func(float64) float64 { return 7 },
		1:   func(n float64) float64 { return 0.01 * n },
		1.5: func(n float64) float64 { return 3 * math.Pow(n, 1.5) },
		2:   func(n float64) float64 { return n * n },
	} {
		var y []float64
		for _, n := range x {
			y = append(y, f(n))
		}
		if got := exponent(x, y); math.Abs(got-want) > 1e-9 {
			t.Errorf("got exponent %g, want %g", got, want)
		}
	}
	if got := exponent([]float64{100, 100}, []float64{1, 2}); got != 0 {
		t.Errorf("one size: got %g, want 0", got)
	}
	if got := exponent([]float64{100, 200}, []float64{0, 2}); got != 0 {
		t.Errorf("a value of 0: got %g, want 0", got)
	}
}

// A machine with half the speed needs twice the time for the same cost.
func TestGrowthIgnoresSpeedOfMachine(t *testing.T) {
	var results []*result
	for n, speed := range map[int]float64{300: 2, 1000: 2, 5000: 1} {
		p := phase{Seconds: float64(n) / speed, CPUSeconds: float64(n) / speed, Speed: speed, OwnAllocatedMiB: float64(n * n)}
		results = append(results, &result{Machines: n, Create: p, Delete: p})
	}
	g := growthOf(results)
	if got := g.EvenCPU; math.Abs(got.Create-1) > 1e-9 || math.Abs(got.All-1) > 1e-9 || got.Roll != 0 {
		t.Errorf("even speed: got the exponents %+v, want 1 and no roll", got)
	}
	if got := g.Allocated; math.Abs(got.Delete-2) > 1e-9 || math.Abs(got.All-2) > 1e-9 {
		t.Errorf("allocated memory: got the exponents %+v, want 2", got)
	}
	if g.CPU.Create < 1.1 || g.Time.Delete < 1.1 {
		t.Errorf("measured speed: got the exponents %+v and %+v, want more than 1", g.CPU, g.Time)
	}
}

func TestPercentile(t *testing.T) {
	values := make([]float64, 100)
	for i := range values {
		values[i] = float64(100 - i)
	}
	for percent, want := range map[float64]float64{50: 50, 99: 99, 100: 100, 1: 1} {
		if got := percentile(values, percent); got != want {
			t.Errorf("percentile %g: got %g, want %g", percent, got, want)
		}
	}
	if got := percentile([]float64{3}, 99); got != 3 {
		t.Errorf("percentile of one value: got %g, want 3", got)
	}
	if got := percentile(nil, 99); got != 0 {
		t.Errorf("percentile of no values: got %g, want 0", got)
	}
}

func TestProcFilesAreParsed(t *testing.T) {
	stat := "42 (a (b) c) S 1 42 42 0 -1 4194560 1000 0 5 0 1234 66 0 0 20 0 9 0 100 2389 4000 18446744073709551615"
	if got, err := parseCPU(stat); err != nil || got != 13*time.Second {
		t.Errorf("got processor time %s, %v, want 13s", got, err)
	}
	if _, err := parseCPU("42 (x) S 1"); err == nil {
		t.Error("got no error for a short line")
	}
	if got, err := parseStatus("Name:\tx\nVmPeak:\t 9 kB\nVmHWM:\t  204800 kB\nVmRSS:\t 1 kB\n", "VmHWM"); err != nil || got != 200 {
		t.Errorf("got peak %g MiB, %v, want 200", got, err)
	}
	if _, err := parseStatus("VmRSS:\t 1 kB\n", "VmHWM"); err == nil {
		t.Error("got no error for a missing peak")
	}
}

func TestPhaseCountsRequests(t *testing.T) {
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	request := func(verb, resource, subresource, name string, code int, from, to time.Duration) auditlog.Request {
		r := auditlog.Request{Verb: verb, Resource: resource, Subresource: subresource, Name: name, Code: code,
			ReceivedAt: begun.Add(from), AnsweredAt: begun.Add(to)}
		if resource == "machines" {
			r.Group = "machinist.dev"
		}
		return r
	}
	var p phase
	p.count([]auditlog.Request{
		request("patch", "machines", "", "a", 200, 2*time.Second, 3*time.Second),
		request("create", "machines", "", "a", 201, time.Second, 2*time.Second),
		request("create", "machines", "", "b", 201, time.Second, 4*time.Second),
		request("patch", "nodes", "", "a", 409, 3*time.Second, 4*time.Second),
		request("get", "nodes", "", "a", 200, 3*time.Second, 4*time.Second),
		request("patch", "nodes", "", "a", 200, 3*time.Second, 5*time.Second),
		request("patch", "machines", "status", "a", 200, 5*time.Second, 6*time.Second),
		request("patch", "machines", "status", "b", 409, 5*time.Second, 9*time.Second),
		request("patch", "machines", "status", "b", 200, 7*time.Second, 8*time.Second),
		request("patch", "machinesets", "status", "s", 200, 9*time.Second, 10*time.Second),
		request("create", "events", "", "e", 201, 9*time.Second, 10*time.Second),
		request("get", "leases", "", "l", 200, 9*time.Second, 10*time.Second),
	}, 2, begun)
	want := phase{Seconds: 8, WritesPerMachine: 3.5, EventsPerMachine: 0.5, ConflictsPerMachine: 1, ReadsPerMachine: 0.5,
		MachinesCreated: 2, P50Seconds: 5, P99Seconds: 7, Reads: map[string]int{"get nodes": 1}}
	p.Writes = nil
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v, want %+v", p, want)
	}
}

func TestScriptContainsAllWrites(t *testing.T) {
	p := &phase{EventsPerMachine: 1.03, Writes: map[string]int{
		callCreate: 100, callPatch: 200, callStatus: 137, callNode: 301, callDelete: 100, callNodeDelete: 100,
		"patch machinesets.machinist.dev/status": 9,
	}}
	s := scriptOf(100, p)
	want := script{n: 100, creates: 100, patches: 100, nodePatches: 100, statuses: 137, deletes: 100, cordons: 201,
		nodeDeletes: 100, finalizerPatches: 100, events: 103}
	if s != want {
		t.Errorf("got script %+v, want %+v", s, want)
	}
	sum := 0
	for i := range s.n {
		sum += s.share(s.statuses, i)
	}
	if sum != s.statuses {
		t.Errorf("got %d writes of the status in total, want %d", sum, s.statuses)
	}
}

func TestPlotIsWellFormed(t *testing.T) {
	var results []*result
	for _, n := range []int{300, 1000, 5000} {
		f := float64(n)
		results = append(results, &result{
			Machines: n, Create: phase{Seconds: f / 100, Limit: limit{Seconds: f / 140}, CPUSeconds: f / 120},
			Roll: &phase{Seconds: f / 30, CPUSeconds: f / 50}, Delete: phase{Seconds: f / 90, Limit: limit{Seconds: f / 130},
				CPUSeconds: f / 150},
		})
	}
	svg := plot(results, growthOf(results))
	texts := 0
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "text" {
			texts++
		}
	}
	if texts < 20 || !strings.Contains(string(svg), "N^1.00") || strings.Contains(string(svg), "NaN") {
		t.Errorf("got an incomplete plot:\n%s", svg)
	}
}

func TestWorkReadsMetrics(t *testing.T) {
	done := &workCounts{passes: map[string]int{"machine": 1}, allocated: 1 << 20}
	err := done.addMetrics(strings.NewReader(`# TYPE controller_runtime_reconcile_total counter
controller_runtime_reconcile_total{controller="machine",result="error"} 1
controller_runtime_reconcile_total{controller="machine",result="success"} 1.2e+03
controller_runtime_reconcile_time_seconds_sum{controller="machine"} 7
controller_runtime_reconcile_total{controller="machineset",result="requeue_after"} 4
go_memstats_alloc_bytes 5
go_memstats_alloc_bytes_total 2.097152e+06
`))
	want := &workCounts{passes: map[string]int{"machine": 1202, "machineset": 4}, allocated: 3 << 20}
	if err != nil || !reflect.DeepEqual(done, want) {
		t.Errorf("got %+v, %v, want %+v", done, err, want)
	}
	p := phase{}
	before := &workCounts{passes: map[string]int{"machine": 2}, allocated: 1 << 20}
	if got := p.workBetween(before, done, 100); got !=
		"0.020 MiB allocated per machine; passes: machine 1200 (12.00 per machine), machineset 4 (0.04 per machine)" ||
		p.Passes["machine"] != 1200 || p.OwnAllocatedMiB != 2 {
		t.Errorf("got %q, the passes %v and %g MiB", got, p.Passes, p.OwnAllocatedMiB)
	}
	if got := p.workBetween(nil, nil, 100); got != "" {
		t.Errorf("got %q without counts, want nothing", got)
	}
	for _, invalid := range []string{bytesCounted + "many", passesCounted + `controller="machine"} many`} {
		if err := done.addMetrics(strings.NewReader(invalid)); err == nil {
			t.Errorf("got no error for %q", invalid)
		}
	}
}
