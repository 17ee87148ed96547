package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// replaced is what replace did to a machine.
type replaced struct {
	// Kind is ReplaceResult.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Done is "will be replaced" or "will not be replaced".
	Done string `json:"done"`
}

// Text implements View.
func (r replaced) Text(w io.Writer, _ Style) error {
	_, err := fmt.Fprintf(w, "machine.%s/%s %s\n", v1beta1.GroupVersion.Group, r.Name, r.Done)
	return err
}

func replaceCommand(env *Env) *cobra.Command {
	var cancel bool
	var format string
	cmd := &cobra.Command{
		Use:   "replace (TYPE NAME | TYPE/NAME)",
		Short: "Replace one machine by a new one, which is made first",
		Long: `Replace one machine by a new one: set the annotation ` + v1beta1.AnnotationReplace + `. Its set makes
another machine, waits until that is available, and then drains and deletes this one. Disruption budgets are
asked, so it may take a while: machinist why machine/NAME says what it waits for.`,
		Example: `  machinist replace machine/web-abc12-x7k2p

  # Not after all
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
	cmd.Flags().BoolVar(&cancel, "cancel", false, "do not replace the machine after all: remove the annotation")
	outputFlag(cmd, &format)
	return cmd
}

func (c *Cluster) replace(ctx context.Context, name string, cancel bool) (replaced, error) {
	m := &v1beta1.Machine{}
	if err := c.get(ctx, machine, name, m); err != nil {
		return replaced{}, err
	}
	change, done := askForReplacement, "will be replaced"
	if cancel {
		change, done = cancelReplacement, "will not be replaced"
	}
	if _, err := edit(ctx, c, m, change); err != nil {
		return replaced{}, err
	}
	return replaced{Kind: "ReplaceResult", Namespace: m.Namespace, Name: name, Done: done}, nil
}

// askForReplacement annotates a machine that its set can replace.
func askForReplacement(m *v1beta1.Machine) error {
	owner := metav1.GetControllerOfNoCopy(m)
	_, asked := m.Annotations[v1beta1.AnnotationReplace]
	switch {
	case m.DeletionTimestamp != nil:
		return fmt.Errorf("machine %q is being deleted already", m.Name)
	case owner == nil || owner.Kind != "MachineSet":
		return fmt.Errorf("machine %q belongs to no MachineSet, so nothing would make another one: create one and delete this",
			m.Name)
	case asked:
		return fmt.Errorf("machine %q is being replaced already: \"machinist why machine/%s\" says what that waits for",
			m.Name, m.Name)
	}
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1beta1.AnnotationReplace, "")
	return nil
}

func cancelReplacement(m *v1beta1.Machine) error {
	_, asked := m.Annotations[v1beta1.AnnotationReplace]
	switch {
	case m.DeletionTimestamp != nil:
		return fmt.Errorf("machine %q is being deleted already: that cannot be cancelled", m.Name)
	case !asked:
		return fmt.Errorf("machine %q is not being replaced", m.Name)
	}
	delete(m.Annotations, v1beta1.AnnotationReplace)
	return nil
}
