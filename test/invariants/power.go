package invariants

import (
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// The rules of stops and reboots. They are written from spec/machines.md, sections "Power state" and "Reboot".

// shutdownTime is how long an operating system has to shut down before its instance is stopped without it.
const shutdownTime = 5 * time.Minute

// WantsStop reports whether a machine requests that its instance is stopped, permanently or for a reboot.
func WantsStop(m *v1beta1.Machine) bool {
	_, reboot := m.Annotations[v1beta1.AnnotationReboot]
	return reboot || m.Spec.PowerState == v1beta1.PowerStopped || IsInReboot(m)
}

// IsInReboot reports whether a reboot has begun and has not ended.
func IsInReboot(m *v1beta1.Machine) bool {
	r := m.Status.Reboot
	return r != nil && (r.State == v1beta1.RebootDraining || r.State == v1beta1.RebootRebooting)
}

// WrongStop returns why an instance may not be stopped now, or "". versions are all versions of its machine.
// believed are those on which the process may base its request.
func WrongStop(versions, believed []*v1beta1.Machine) string {
	requested, recorded := false, false
	for _, m := range versions {
		requested = requested || m != nil && WantsStop(m)
	}
	for _, m := range believed {
		recorded = recorded || m != nil && m.Status.Power != nil && m.Status.Power.Step == v1beta1.PowerStepShuttingDown
	}
	switch {
	case !requested:
		return "this was not requested"
	case !recorded:
		return "the status does not record this"
	}
	return ""
}

// WrongForcedStop returns why an instance may not be stopped without its operating system now, or "". isSilent is true
// if the kubelet does not report.
func WrongForcedStop(believed []*v1beta1.Machine, now time.Time, isSilent bool) string {
	if isSilent {
		return ""
	}
	for _, m := range believed {
		if m != nil && m.Status.Power != nil && m.Status.Power.Step == v1beta1.PowerStepShuttingDown &&
			now.Sub(m.Status.Power.Since.Time) >= shutdownTime {
			return ""
		}
	}
	return "it has had less than " + shutdownTime.String() + " to shut down"
}

// Reboots returns the number of different reboots that the versions of a machine have requested.
func Reboots(versions []*v1beta1.Machine) int {
	values := map[string]bool{}
	for _, m := range versions {
		if m == nil {
			continue
		}
		if value, requested := m.Annotations[v1beta1.AnnotationReboot]; requested {
			values[value] = true
		}
	}
	return len(values)
}

// WasSwitched reports whether a user has ever set the power state of a machine.
func WasSwitched(versions []*v1beta1.Machine) bool {
	for _, m := range versions {
		if m != nil && m.Spec.PowerState != "" {
			return true
		}
	}
	return false
}
