package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

type replaceResult struct {
	// Kind is always ReplaceResult.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Outcome describes the effect of the command: "will be replaced" or "will not be replaced".
	Outcome string `json:"done"`
}

// Text implements View.
func (r replaceResult) Text(w io.Writer, _ Style) error {
	_, err := fmt.Fprintf(w, "machine.%s/%s %s\n", v1beta1.GroupVersion.Group, r.Name, r.Outcome)
	return err
}

func replaceCommand(env *Env) *cobra.Command {
	var cancel bool
	var format string
	cmd := &cobra.Command{
		Use:   "replace (TYPE NAME | TYPE/NAME)",
		Short: "Replace one machine by a new one, which is created first",
		Long: `Replace one machine by a new one: set the annotation ` + v1beta1.AnnotationReplace + `. The machine's set
creates a new machine, waits until it is available, and then drains and deletes the old machine. Disruption budgets
can delay the replacement. "machinist why machine/NAME" shows what it waits for.`,
		Example: `  machinist replace machine/web-abc12-x7k2p

  # Cancel the replacement
  machinist replace machine/web-abc12-x7k2p --cancel`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: env.completion(machine),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			_, name, err := reference(args, machine)
			if err != nil {
				return err
			}
			c, err := env.Connect()
			if err != nil {
				return err
			}
			result, err := c.replace(cmd.Context(), name, cancel)
			if err != nil {
				return err
			}
			return env.Print(result, format)
		},
	}
	cmd.Flags().BoolVar(&cancel, "cancel", false, "cancel the replacement: remove the annotation")
	outputFlag(cmd, &format)
	return cmd
}

// replace adds the annotation that requests a replacement, or removes it if cancel is true.
func (c *Cluster) replace(ctx context.Context, name string, cancel bool) (replaceResult, error) {
	m := &v1beta1.Machine{}
	if err := c.get(ctx, machine, name, m); err != nil {
		return replaceResult{}, err
	}
	change, done := requestReplacement, "will be replaced"
	if cancel {
		change, done = cancelReplacement, "will not be replaced"
	}
	if _, err := edit(ctx, c, m, change); err != nil {
		return replaceResult{}, err
	}
	return replaceResult{Kind: "ReplaceResult", Namespace: m.Namespace, Name: name, Outcome: done}, nil
}

// requestReplacement adds the annotation. requestReplacement fails if the machine cannot be replaced.
func requestReplacement(m *v1beta1.Machine) error {
	owner := metav1.GetControllerOfNoCopy(m)
	_, requested := m.Annotations[v1beta1.AnnotationReplace]
	switch {
	case m.DeletionTimestamp != nil:
		return fmt.Errorf("machine %q is already being deleted", m.Name)
	case owner == nil || owner.Kind != "MachineSet":
		return fmt.Errorf("machine %q is not owned by a MachineSet that could replace it: create a new machine, then "+
			"delete this one", m.Name)
	case requested:
		return fmt.Errorf("machine %q is already being replaced: \"machinist why machine/%s\" shows what the replacement "+
			"waits for", m.Name, m.Name)
	}
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1beta1.AnnotationReplace, "")
	return nil
}

// cancelReplacement removes the annotation. cancelReplacement fails without a request, or if the machine is already
// being deleted.
func cancelReplacement(m *v1beta1.Machine) error {
	_, requested := m.Annotations[v1beta1.AnnotationReplace]
	switch {
	case m.DeletionTimestamp != nil:
		return fmt.Errorf("machine %q is already being deleted: a deletion cannot be cancelled", m.Name)
	case !requested:
		return fmt.Errorf("machine %q is not being replaced", m.Name)
	}
	delete(m.Annotations, v1beta1.AnnotationReplace)
	return nil
}
