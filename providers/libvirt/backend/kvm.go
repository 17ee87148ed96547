package backend

import (
	"os"
	"slices"
	"strings"
)

// hasKVM reports whether QEMU can run machines with KVM. It does not rely on the existence of /dev/kvm, because some
// hosts have this device although their processors do not support KVM.
func hasKVM() bool {
	device, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	_ = device.Close()
	processors, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && virtualizes(string(processors))
}

// virtualizes reports whether the content of /proc/cpuinfo names a processor with the virtualization extensions of
// Intel or AMD.
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
