package machine

import (
	"fmt"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

func (r *Reconciler) unsupportedSchema(m *v1beta1.Machine) string {
	return unsupportedSchema(m, r.RequireTypeVersion)
}

// unsupportedSchema says why the Machine is neither launched nor changed, only observed and deleted: it was written
// for a schema that this process does not know or, where the label is required, does not say for which. Empty if there
// is no reason.
func unsupportedSchema(m *v1beta1.Machine, required bool) string {
	version, versioned := m.Labels[v1beta1.LabelTypeVersion]
	switch {
	case machinestate.UnsupportedSchema(m.Labels):
		return fmt.Sprintf("Label %s is %q; this process knows %q. The machine can be deleted, nothing else.",
			v1beta1.LabelTypeVersion, version, v1beta1.TypeVersion)
	case !versioned && required:
		return fmt.Sprintf("Label %s is missing, and this process requires it (--require-type-version). The machine can be "+
			"deleted, nothing else. If it is meant for this API, set the label to %s.", v1beta1.LabelTypeVersion,
			v1beta1.TypeVersion)
	}
	return ""
}
