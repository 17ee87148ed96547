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
	// Speed is how fast the machine was meanwhile, see speedometer.
	Speed float64 `json:"speed"`
	// Limit is what a bare client took for the same writes, and Independent what one took that writes the least that any
	// keeper of machines has to.
	Limit       limit `json:"limit"`
	Independent limit `json:"independent_limit"`

	WritesPerMachine    float64 `json:"writes_per_machine"`
	EventsPerMachine    float64 `json:"events_per_machine"`
	ConflictsPerMachine float64 `json:"conflicts_per_machine"`
	ReadsPerMachine     float64 `json:"reads_per_machine"`
	MachinesCreated     int     `json:"machines_created"`

	// CPUSeconds of both processes, user and system.
	CPUSeconds         float64 `json:"cpu_seconds"`
	ManagerCPUSeconds  float64 `json:"manager_cpu_seconds"`
	ProviderCPUSeconds float64 `json:"provider_cpu_seconds"`
	// Shares are what each process used until the fleet was as asked for, those of the control plane and the bench too.
	Shares shares `json:"shares,omitempty"`

	// AllocatedMiBPerMachine is what the API server allocated until it was calm: what it had to do, counted, which is the
	// same however fast the machine is.
	AllocatedMiBPerMachine float64 `json:"api_server_allocated_mib_per_machine"`

	// OwnAllocatedMiB is what both processes allocated, if that is counted.
	OwnAllocatedMiB float64 `json:"own_allocated_mib,omitempty"`

	// P50Seconds and P99Seconds of one machine, from the request that makes it or has it deleted until the write that
	// makes it Running or lets it go. In a rolling update those of the new machines.
	P50Seconds float64 `json:"p50_seconds"`
	P99Seconds float64 `json:"p99_seconds"`

	// Writes by what they do, such as "patch machines.machinist.dev/status". Of several rounds the most.
	Writes map[string]int `json:"writes"`
	// Passes by controller, if they are counted. Of several rounds the most.
	Passes map[string]int `json:"passes,omitempty"`
	// Reads by what they read, such as "list pods". Of several rounds the most.
	Reads map[string]int `json:"reads"`
}

// limit is what a bare client took for what a fleet went through, and how the fleet compares.
type limit struct {
	Seconds float64 `json:"seconds"`
	// Speed is how fast the machine was for the bare client.
	Speed float64 `json:"speed"`
	// Ratio is the fleet's time by that of the bare client, and EvenRatio that which is left if the machine had been as
	// fast for both.
	Ratio     float64 `json:"ratio"`
	EvenRatio float64 `json:"even_ratio"`
	// Rounds are the even ratios of each round, if there were several.
	Rounds []float64 `json:"rounds,omitempty"`

	WritesPerMachine float64 `json:"writes_per_machine"`
	// AllocatedMiBPerMachine is what the API server allocated until it was calm, and AllocationRatio what it allocated for
	// the fleet by that.
	AllocatedMiBPerMachine float64 `json:"api_server_allocated_mib_per_machine"`
	AllocationRatio        float64 `json:"allocation_ratio"`
	// Shares are what each process used; the bench is the bare client.
	Shares shares `json:"shares,omitempty"`
}

// compare fills in the ratios.
func (l *limit) compare(p *phase) {
	if l.Seconds > 0 && l.Speed > 0 {
		l.Ratio = p.Seconds / l.Seconds
		l.EvenRatio = l.Ratio * p.Speed / l.Speed
	}
	if l.AllocatedMiBPerMachine > 0 {
		l.AllocationRatio = p.AllocatedMiBPerMachine / l.AllocatedMiBPerMachine
	}
}

// idle is what a fleet costs that nobody changes.
type idle struct {
	Writes     int     `json:"writes"`
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"`
	Heartbeats int     `json:"heartbeats"`
	// Shares are what each process used; the bench is the kubelets.
	Shares shares `json:"shares,omitempty"`
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
