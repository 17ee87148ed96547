package process

import (
	"os"
	"runtime/debug"
)

// gcPercent is the value of GOGC for all processes, half of Go's default. Most of the heap consists of cached objects,
// which live long. With GOGC=65, the manager and the provider together exceeded their budget of 250 MiB for 5,000
// machines (go run ./bench --machines 5000 --limit=false --passes).
const gcPercent = 50

// SpareMemory reduces the memory of the process, and increases its processor time slightly. If the environment variable
// GOGC is set, SpareMemory does nothing.
func SpareMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
