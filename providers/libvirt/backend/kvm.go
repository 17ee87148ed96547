package backend

import (
	"os"
	"slices"
	"strings"
)

// hasKVM reports whether QEMU can run machines with KVM. The existence of /dev/kvm is not enough, because some hosts
// have the device although only guests of one kind can use it.
func hasKVM() bool {
	device, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	_ = device.Close()
	processors, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && virtualizes(string(processors))
}

// virtualizes reports whether the content of /proc/cpuinfo names a processor with Intel's or AMD's virtualization.
func virtualizes(processors string) bool {
	for line := range strings.Lines(processors) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) != "flags" {
			continue
		}
		flags := strings.Fields(value)
		return slices.Contains(flags, "vmx") || slices.Contains(flags, "svm")
	}
	return false
}
