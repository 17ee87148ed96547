package backend

import (
	"os"
	"slices"
	"strings"
)

// hasKVM reports whether QEMU can use KVM. The existence of /dev/kvm is not sufficient, because the processor may not
// support KVM.
func hasKVM() bool {
	device, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	_ = device.Close()
	processors, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && virtualizes(string(processors))
}

// virtualizes reports whether /proc/cpuinfo shows the virtualization extensions of Intel or AMD.
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
