package process

import (
	"os"
	"runtime/debug"
)

// gcPercent is how much more memory than its live heap a process may use, in percent. It is half of Go's default. Most
// of the live heap are cached objects, which live long. With 65, manager and provider together used 263 MiB for 5,000
// machines, and their budget is 250 MiB (go run ./bench --machines 5000 --limit=false --passes).
const gcPercent = 50

// SpareMemory trades a little processor time for memory, unless the environment variable GOGC is set.
func SpareMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
