package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

type result struct {
	Machines int `json:"machines"`
	Pods     int `json:"pods"`

	Create phase  `json:"create"`
	Idle   idle   `json:"idle"`
	Roll   *phase `json:"roll,omitempty"`
	Delete phase  `json:"delete"`
	Memory memory `json:"memory"`
}

// phase contains the costs of one change of the whole fleet.
type phase struct {
	// Seconds is the time from the change of the deployment until the last write of a Machine is done. Later writes of
	// sets and deployments do not count.
	Seconds float64 `json:"seconds"`
	// Speed shows how fast the computer was during the phase, as the speedometer measured it.
	Speed float64 `json:"speed"`
	// Limit contains the measurements of a bare client that sends the same writes as Machinist, and nothing else.
	// Independent contains the measurements of a bare client that sends only the smallest possible writes for the same
	// machines.
	Limit       limit `json:"limit"`
	Independent limit `json:"independent_limit"`

	WritesPerMachine    float64 `json:"writes_per_machine"`
	EventsPerMachine    float64 `json:"events_per_machine"`
	ConflictsPerMachine float64 `json:"conflicts_per_machine"`
	ReadsPerMachine     float64 `json:"reads_per_machine"`
	MachinesCreated     int     `json:"machines_created"`

	// CPUSeconds is the processor time of the manager and the provider, user and system.
	CPUSeconds         float64 `json:"cpu_seconds"`
	ManagerCPUSeconds  float64 `json:"manager_cpu_seconds"`
	ProviderCPUSeconds float64 `json:"provider_cpu_seconds"`
	// Shares is the processor time of each process, including the control plane and the bench.
	Shares shares `json:"shares,omitempty"`

	// AllocatedMiBPerMachine is the memory that the API server allocated in the phase. Unlike the processor time, it
	// does not depend on the speed of the computer.
	AllocatedMiBPerMachine float64 `json:"api_server_allocated_mib_per_machine"`

	// OwnAllocatedMiB is the memory that the manager and the provider allocated, if measured.
	OwnAllocatedMiB float64 `json:"own_allocated_mib,omitempty"`

	// P50Seconds and P99Seconds are percentiles of the time in which one machine is created or deleted. A creation
	// takes from the create request to the write that sets Running. A deletion takes from the delete request to the
	// write that removes the finalizer. A rolling update counts only the new machines.
	P50Seconds float64 `json:"p50_seconds"`
	P99Seconds float64 `json:"p99_seconds"`

	// Writes contains the number of writes for each call, such as "patch machines.machinist.dev/status". With several
	// rounds, each number is the maximum of all rounds.
	Writes map[string]int `json:"writes"`
	// Passes contains the number of reconciles of each controller, if measured. With several rounds, each number is the
	// maximum of all rounds.
	Passes map[string]int `json:"passes,omitempty"`
	// Reads contains the number of reads for each call, such as "list pods". With several rounds, each number is the
	// maximum of all rounds.
	Reads map[string]int `json:"reads"`
}

// limit contains the measurements of a client that replays the writes of a phase without reads and decisions.
type limit struct {
	Seconds float64 `json:"seconds"`
	// Speed shows how fast the computer was while the bare client ran.
	Speed float64 `json:"speed"`
	// Ratio is the time that Machinist needed for the phase, divided by the time of the bare client. EvenRatio is
	// computed like Ratio, but from times that are corrected for changes of the computer's speed.
	Ratio     float64 `json:"ratio"`
	EvenRatio float64 `json:"even_ratio"`
	// Rounds contains the EvenRatio of each round, if there are several rounds.
	Rounds []float64 `json:"rounds,omitempty"`

	WritesPerMachine float64 `json:"writes_per_machine"`
	// AllocatedMiBPerMachine is the memory that the API server allocated for the bare client. AllocationRatio is the
	// memory that the API server allocated for Machinist, divided by the memory that it allocated for the bare client.
	AllocatedMiBPerMachine float64 `json:"api_server_allocated_mib_per_machine"`
	AllocationRatio        float64 `json:"allocation_ratio"`
	// Shares is the processor time of each process. The bare client is part of the process of the bench, so its
	// processor time is in the entry for the bench.
	Shares shares `json:"shares,omitempty"`
}

func (l *limit) compare(p *phase) {
	if l.Seconds > 0 && l.Speed > 0 {
		l.Ratio = p.Seconds / l.Seconds
		l.EvenRatio = l.Ratio * p.Speed / l.Speed
	}
	if l.AllocatedMiBPerMachine > 0 {
		l.AllocationRatio = p.AllocatedMiBPerMachine / l.AllocatedMiBPerMachine
	}
}

type idle struct {
	Writes     int     `json:"writes"`
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"`
	Heartbeats int     `json:"heartbeats"`
	// Shares is the processor time of each process. The bench acts as the kubelets.
	Shares shares `json:"shares,omitempty"`
}

// memory contains the peak resident memory of the manager and the provider. PeakMiB is the sum of these two peaks,
// which may have occurred at different times.
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
	fmt.Fprintln(w, "\tseconds\tlimit\tratio\teven ratio\tindependent\tratio\teven ratio\twrites/machine\treads/machine\tevents/machine"+
		"\tconflicts/machine\tcreated\tCPU s\tp50 s\tp99 s\t")
	rows := []struct {
		name string
		p    *phase
	}{{"create", &r.Create}, {"roll", r.Roll}, {"delete", &r.Delete}}
	for _, row := range rows {
		if p := row.p; p != nil {
			fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%d\t%.2f\t%.2f\t%.2f\t\n", row.name,
				p.Seconds, p.Limit.Seconds, p.Limit.Ratio, p.Limit.EvenRatio,
				p.Independent.Seconds, p.Independent.Ratio, p.Independent.EvenRatio,
				p.WritesPerMachine, p.ReadsPerMachine, p.EventsPerMachine, p.ConflictsPerMachine, p.MachinesCreated,
				p.CPUSeconds, p.P50Seconds, p.P99Seconds)
		}
	}
	_ = w.Flush()
	for _, row := range rows {
		if p := row.p; p != nil && len(p.Limit.Rounds) > 0 {
			fmt.Fprintf(out, "%s: means of %d rounds; even ratios of each %.2f, to the independent limit %.2f\n", row.name,
				len(p.Limit.Rounds), p.Limit.Rounds, p.Independent.Rounds)
		}
	}
	for _, row := range rows {
		if p := row.p; p != nil {
			p.Shares.show(out, row.name)
			p.Limit.Shares.show(out, row.name+", limit")
			p.Independent.Shares.show(out, row.name+", independent limit")
		}
	}
	for _, row := range rows {
		if p := row.p; p != nil {
			fmt.Fprintf(out, "%s: the API server allocated %.2f MiB per machine", row.name, p.AllocatedMiBPerMachine)
			if p.Limit.AllocatedMiBPerMachine > 0 {
				fmt.Fprintf(out, ", %.2f times the limit's %.2f and %.2f times the independent limit's %.2f", p.Limit.AllocationRatio,
					p.Limit.AllocatedMiBPerMachine, p.Independent.AllocationRatio, p.Independent.AllocatedMiBPerMachine)
			}
			fmt.Fprintln(out)
		}
	}
	r.Idle.Shares.show(out, "idle")
	fmt.Fprintf(out, "idle: %d writes and %.2f CPU seconds in %.0f s with %d heartbeats\n", r.Idle.Writes,
		r.Idle.CPUSeconds, r.Idle.Seconds, r.Idle.Heartbeats)
	fmt.Fprintf(out, "peak memory: %.0f MiB (manager %.0f, provider %.0f)\n", r.Memory.PeakMiB, r.Memory.ManagerPeakMiB,
		r.Memory.ProviderPeakMiB)
}
