package machine

import (
	"fmt"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

func (r *Reconciler) unsupportedSchema(m *v1beta1.Machine) string {
	return unsupportedSchema(m, r.RequireTypeVersion)
}

// unsupportedSchema returns a message if the Machine must be neither launched nor changed. The reason is that the
// process does not know the type version, or that a required type version is missing. Such a Machine is only observed
// and deleted.
func unsupportedSchema(m *v1beta1.Machine, required bool) string {
	version, versioned := m.Labels[v1beta1.LabelTypeVersion]
	switch {
	case machinestate.UnsupportedSchema(m.Labels):
		return fmt.Sprintf("Label %s is %q, but this process supports only %q. The machine can be deleted, but it is not launched or changed.",
			v1beta1.LabelTypeVersion, version, v1beta1.TypeVersion)
	case !versioned && required:
		return fmt.Sprintf("Label %s is missing, and this process requires it (--require-type-version). The machine can be "+
			"deleted, but it is not launched or changed. If it is meant for this API, set the label to %s.", v1beta1.LabelTypeVersion,
			v1beta1.TypeVersion)
	}
	return ""
}
