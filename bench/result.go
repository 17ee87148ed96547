package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// result is what one fleet cost.
type result struct {
	Machines int `json:"machines"`
	Pods     int `json:"pods"`

	Create phase  `json:"create"`
	Idle   idle   `json:"idle"`
	Roll   *phase `json:"roll,omitempty"`
	Delete phase  `json:"delete"`
	Memory memory `json:"memory"`
}

// phase is what one change of the whole fleet cost.
type phase struct {
	// Seconds from the change of the deployment until the last write to a Machine was answered. Status of sets and
	// deployments may follow.
	Seconds float64 `json:"seconds"`
	// LimitSeconds is what a bare client took for the same writes.
	LimitSeconds float64 `json:"limit_seconds"`
	Ratio        float64 `json:"ratio"`
	// Speed is how fast the machine was meanwhile, see speedometer, and LimitSpeed how fast it was for the bare client.
	// EvenRatio is the ratio that is left if the machine had been as fast for both.
	Speed      float64 `json:"speed"`
	LimitSpeed float64 `json:"limit_speed"`
	EvenRatio  float64 `json:"even_ratio"`
	// Rounds are the ratios of each round, if there were several.
	Rounds []float64 `json:"rounds,omitempty"`

	WritesPerMachine      float64 `json:"writes_per_machine"`
	LimitWritesPerMachine float64 `json:"limit_writes_per_machine"`
	EventsPerMachine      float64 `json:"events_per_machine"`
	ConflictsPerMachine   float64 `json:"conflicts_per_machine"`
	ReadsPerMachine       float64 `json:"reads_per_machine"`
	MachinesCreated       int     `json:"machines_created"`

	// CPUSeconds of both processes, user and system.
	CPUSeconds         float64 `json:"cpu_seconds"`
	ManagerCPUSeconds  float64 `json:"manager_cpu_seconds"`
	ProviderCPUSeconds float64 `json:"provider_cpu_seconds"`

	// P50Seconds and P99Seconds of one machine, from the request that makes it or has it deleted until the write that
	// makes it Running or lets it go. In a rolling update those of the new machines.
	P50Seconds float64 `json:"p50_seconds"`
	P99Seconds float64 `json:"p99_seconds"`

	// Writes by what they do, such as "patch machines.machinist.dev/status". Of several rounds the most.
	Writes map[string]int `json:"writes"`
}

// idle is what a fleet costs that nobody changes.
type idle struct {
	Writes     int     `json:"writes"`
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"`
	Heartbeats int     `json:"heartbeats"`
}

// memory is the greatest resident set that the processes ever had. That of both together is the sum, though they may
// not have had it at the same time.
type memory struct {
	PeakMiB         float64 `json:"peak_mib"`
	ManagerPeakMiB  float64 `json:"manager_peak_mib"`
	ProviderPeakMiB float64 `json:"provider_peak_mib"`
}

func (r *result) table(out io.Writer) {
	fmt.Fprintf(out, "\n%d machines", r.Machines)
	if r.Pods > 0 {
		fmt.Fprintf(out, ", %d pods", r.Pods)
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w,
		"\tseconds\tlimit\tratio\teven ratio\twrites/machine\tevents/machine\tconflicts/machine\tcreated\tCPU s\tp50 s\tp99 s\t")
	for _, row := range []struct {
		name string
		p    *phase
	}{{"create", &r.Create}, {"roll", r.Roll}, {"delete", &r.Delete}} {
		if p := row.p; p != nil {
			fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%d\t%.2f\t%.2f\t%.2f\t\n", row.name, p.Seconds,
				p.LimitSeconds, p.Ratio, p.EvenRatio,
				p.WritesPerMachine, p.EventsPerMachine, p.ConflictsPerMachine, p.MachinesCreated, p.CPUSeconds, p.P50Seconds,
				p.P99Seconds)
		}
	}
	_ = w.Flush()
	if rounds := len(r.Delete.Rounds); rounds > 0 {
		fmt.Fprintf(out, "means of %d rounds; ratios of each: create %.2f", rounds, r.Create.Rounds)
		if r.Roll != nil {
			fmt.Fprintf(out, ", roll %.2f", r.Roll.Rounds)
		}
		fmt.Fprintf(out, ", delete %.2f\n", r.Delete.Rounds)
	}
	fmt.Fprintf(out, "idle: %d writes and %.2f CPU seconds in %.0f s with %d heartbeats\n", r.Idle.Writes,
		r.Idle.CPUSeconds, r.Idle.Seconds, r.Idle.Heartbeats)
	fmt.Fprintf(out, "peak memory: %.0f MiB (manager %.0f, provider %.0f)\n", r.Memory.PeakMiB, r.Memory.ManagerPeakMiB,
		r.Memory.ProviderPeakMiB)
}
