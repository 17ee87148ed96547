package main

import (
	"reflect"
	"strings"
	"testing"
)

func TestMeanOfRounds(t *testing.T) {
	first := &result{
		Machines: 10, Pods: 3,
		Create: phase{Seconds: 10, Limit: limit{Seconds: 10, Speed: 100, EvenRatio: 1, AllocatedMiBPerMachine: 2}, Speed: 100,
			MachinesCreated: 10, AllocatedMiBPerMachine: 3,
			Writes: map[string]int{"a": 1}, Reads: map[string]int{"r": 4}},
		Delete: phase{Seconds: 6, Limit: limit{Seconds: 2, Speed: 100, EvenRatio: 1.5}, Speed: 50, CPUSeconds: 1},
		Idle:   idle{Writes: 0, Seconds: 30, Heartbeats: 7},
		Memory: memory{PeakMiB: 100, ManagerPeakMiB: 60, ProviderPeakMiB: 40},
	}
	second := &result{
		Machines: 10, Pods: 3,
		Create: phase{Seconds: 20, Limit: limit{Seconds: 10, Speed: 100, EvenRatio: 2, AllocatedMiBPerMachine: 4}, Speed: 100,
			MachinesCreated: 11, AllocatedMiBPerMachine: 6,
			Writes: map[string]int{"a": 3, "b": 1}, Reads: map[string]int{"r": 2}},
		Delete: phase{Seconds: 2, Limit: limit{Seconds: 2, Speed: 100, EvenRatio: 1}, Speed: 100, CPUSeconds: 2},
		Idle:   idle{Writes: 1, Seconds: 30, Heartbeats: 7},
		Memory: memory{PeakMiB: 90, ManagerPeakMiB: 70, ProviderPeakMiB: 20},
	}
	want := &result{
		Machines: 10, Pods: 3,
		Create: phase{Seconds: 15, Speed: 100, MachinesCreated: 11, Writes: map[string]int{"a": 3, "b": 1},
			Reads: map[string]int{"r": 4}, AllocatedMiBPerMachine: 4.5,
			Limit: limit{Seconds: 10, Speed: 100, Ratio: 1.5, EvenRatio: 1.5, Rounds: []float64{1, 2},
				AllocatedMiBPerMachine: 3, AllocationRatio: 1.5}},
		Delete: phase{Seconds: 4, Speed: 75, CPUSeconds: 1.5, Writes: map[string]int{},
			Reads: map[string]int{},
			Limit: limit{Seconds: 2, Speed: 100, Ratio: 2, EvenRatio: 1.25, Rounds: []float64{1.5, 1}}},
		Idle:   idle{Writes: 1, Seconds: 60, Heartbeats: 14},
		Memory: first.Memory,
	}
	got := meanOf([]*result{first, second})
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if meanOf([]*result{first}) != first {
		t.Error("meanOf changed a single round")
	}
	first.Roll, second.Roll = &first.Delete, &second.Delete
	if got := meanOf([]*result{first, second}); !reflect.DeepEqual(*got.Roll, want.Delete) {
		t.Errorf("got the roll %+v, want %+v", *got.Roll, want.Delete)
	}
	var table strings.Builder
	want.table(&table)
	if !strings.Contains(table.String(), "create: means of 2 rounds; even ratios of each [1.00 2.00]") {
		t.Errorf("the table does not contain the rounds: %s", table.String())
	}
}
