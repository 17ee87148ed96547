package rollout

import (
	"fmt"
	"io"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/change"
	"machinist.dev/machinist/internal/cli/printer"
)

// Result is what a command did to a deployment.
type Result struct {
	// Kind is RolloutResult.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Done is what was done, such as "restarted"; "skipped rollback" and the like if there was nothing to do.
	Done string `json:"done"`
	// Changed says that the deployment was changed.
	Changed bool `json:"changed"`
	// DryRun is client or server where nothing was changed since that was asked for.
	DryRun string `json:"dryRun,omitempty"`
	// Detail says more of what was done.
	Detail string `json:"detail,omitempty"`
	// Revision is the one gone back to.
	Revision int64 `json:"revision,omitempty"`
	// Changes are those of the template.
	Changes []change.Change `json:"changes,omitempty"`
	// Warnings say what will come otherwise than one might think.
	Warnings []string `json:"warnings,omitempty"`
}

// Did returns the result of a change.
func Did(d *v1beta1.MachineDeployment, done string) *Result {
	return &Result{Kind: "RolloutResult", Namespace: d.Namespace, Name: d.Name, Done: done, Changed: true}
}

// Text implements the view of a command. Warnings are for the other stream.
func (r *Result) Text(w io.Writer, s printer.Style) error {
	var out strings.Builder
	fmt.Fprintf(&out, "machinedeployment.%s/%s %s", v1beta1.GroupVersion.Group, r.Name, r.Done)
	if r.Detail != "" {
		fmt.Fprintf(&out, " (%s)", printer.Clean(r.Detail))
	}
	switch r.DryRun {
	case "client":
		out.WriteString(" (dry run)")
	case "server":
		out.WriteString(" (server dry run)")
	}
	out.WriteString("\n")
	if r.DryRun != "" || s.Wide {
		for _, c := range r.Changes {
			fmt.Fprintf(&out, "  %s\n", printer.Clean(c.String()))
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// Expect says what a person should know who has changed what rolls.
func Expect(d *v1beta1.MachineDeployment, restart bool) (warnings []string) {
	if _, frozen := d.Labels[v1beta1.LabelFreeze]; frozen {
		warnings = append(warnings, fmt.Sprintf("the deployment has the label %s: nothing rolls out until it is taken off",
			v1beta1.LabelFreeze))
	}
	switch d.Spec.Strategy.TypeOrDefault() {
	case v1beta1.StrategyOnDelete:
		warnings = append(warnings, "strategy OnDelete: machines of the old revision stay until somebody deletes them")
	case v1beta1.StrategyRecreate:
		warnings = append(warnings, "strategy Recreate: all machines are deleted before new ones are made")
	case v1beta1.StrategyInPlace:
		if restart {
			warnings = append(warnings,
				"strategy InPlace: a restart changes no instance, it only hands the machines over to a new revision")
		}
	}
	return warnings
}
