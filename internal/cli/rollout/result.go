package rollout

import (
	"fmt"
	"io"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/change"
	"machinist.dev/machinist/internal/cli/printer"
)

// Result is the view of a command that has changed a deployment.
type Result struct {
	// Kind is always RolloutResult.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Outcome is the result of the command, such as "restarted" or "skipped rollback".
	Outcome string `json:"done"`
	// Changed is true if the deployment was changed.
	Changed bool `json:"changed"`
	// DryRun is the value of --dry-run: client, server, or empty.
	DryRun string `json:"dryRun,omitempty"`
	// Detail adds facts to the result, or is empty.
	Detail string `json:"detail,omitempty"`
	// Revision is the revision to which the deployment is rolled back.
	Revision int64 `json:"revision,omitempty"`
	// Changes lists the fields of the template that the command changed, with the old and new values.
	Changes []change.Change `json:"changes,omitempty"`
	// Warnings are effects that the user may not expect.
	Warnings []string `json:"warnings,omitempty"`
}

// NewResult returns the Result of a command that changed the deployment. The text for the field Outcome says what the
// command did, such as "restarted".
func NewResult(d *v1beta1.MachineDeployment, done string) *Result {
	return &Result{Kind: "RolloutResult", Namespace: d.Namespace, Name: d.Name, Outcome: done, Changed: true}
}

// Text writes the result without the warnings, which the caller prints to standard error.
func (r *Result) Text(w io.Writer, s printer.Style) error {
	var out strings.Builder
	fmt.Fprintf(&out, "machinedeployment.%s/%s %s", v1beta1.GroupVersion.Group, r.Name, r.Outcome)
	if r.Detail != "" {
		fmt.Fprintf(&out, " (%s)", printer.Sanitize(r.Detail))
	}
	switch r.DryRun {
	case "client":
		out.WriteString(" (dry run)")
	case "server":
		out.WriteString(" (server dry run)")
	}
	out.WriteString("\n")
	if r.DryRun != "" || s.AllColumns {
		for _, c := range r.Changes {
			fmt.Fprintf(&out, "  %s\n", printer.Sanitize(c.String()))
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// Warnings returns warnings about surprising effects of a change. Pass the changed deployment, and true for restart
// if the change restarts the machines.
func Warnings(d *v1beta1.MachineDeployment, restart bool) (warnings []string) {
	if _, frozen := d.Labels[v1beta1.LabelFreeze]; frozen {
		warnings = append(warnings, fmt.Sprintf(
			"the deployment has the label %s: the rollout does not start until the label is removed", v1beta1.LabelFreeze))
	}
	switch d.Spec.Strategy.TypeOrDefault() {
	case v1beta1.StrategyOnDelete:
		warnings = append(warnings, "strategy OnDelete: machines of the old revision stay until you delete them")
	case v1beta1.StrategyRecreate:
		warnings = append(warnings, "strategy Recreate: all machines are deleted before new ones are created")
	case v1beta1.StrategyInPlace:
		if restart {
			warnings = append(warnings,
				"strategy InPlace: a restart does not change any instance, it only hands over the machines to a new revision")
		}
	}
	return warnings
}
