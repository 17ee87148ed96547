package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTicksPerSecond is the number of clock ticks per second in the files of /proc. On Linux, this number is always
// 100.
const clockTicksPerSecond = 100

// cpuOf returns the user and system time of a process.
func cpuOf(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	return parseCPU(string(stat))
}

func parseCPU(stat string) (time.Duration, error) {
	// The program name may contain spaces and parentheses.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("read processor time: %q has too few fields", stat)
	}
	var sum int64
	for _, field := range fields[11:13] { // These fields are utime and stime.
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read processor time: %w", err)
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / clockTicksPerSecond, nil
}

func peakOf(pid int) (float64, error) { return statusOf(pid, "VmHWM") }

func residentOf(pid int) (float64, error) { return statusOf(pid, "VmRSS") }

func statusOf(pid int, field string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	return parseStatus(string(status), field)
}

// parseStatus reads a field in kB and returns MiB.
func parseStatus(status, field string) (float64, error) {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			if err != nil {
				return 0, fmt.Errorf("read memory: %w", err)
			}
			return kib / 1024, nil
		}
	}
	return 0, fmt.Errorf("read memory: found no %s", field)
}
