package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

type rebootResult struct {
	// Kind is always RebootResult.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Request is the value of the annotation. status.reboot.request of the Machine has this value when the reboot begins.
	Request string `json:"request"`
}

// Text implements View.
func (r rebootResult) Text(w io.Writer, _ Style) error {
	_, err := fmt.Fprintf(w, "machine.%s/%s will be rebooted\n", v1beta1.GroupVersion.Group, r.Name)
	return err
}

func rebootCommand(env *Env) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "reboot (TYPE NAME | TYPE/NAME)",
		Short: "Reboot the instance of one machine",
		Long: `Reboot the instance of one machine: set the annotation ` + v1beta1.AnnotationReboot + ` to the current time.
The provider drains the node, stops the instance and starts it again. The instance, its disks and its Node stay. If the
kubelet does not report, the node is not drained. Disruption budgets do not delay the reboot. "machinist why
machine/NAME" shows the progress.`,
		Example:           `  machinist reboot machine/web-abc12-x7k2p`,
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
			result, err := c.reboot(cmd.Context(), name, time.Now())
			if err != nil {
				return err
			}
			return env.Print(result, format)
		},
	}
	outputFlag(cmd, &format)
	return cmd
}

// reboot adds the annotation that requests a reboot.
func (c *Cluster) reboot(ctx context.Context, name string, now time.Time) (rebootResult, error) {
	m := &v1beta1.Machine{}
	if err := c.get(ctx, machine, name, m); err != nil {
		return rebootResult{}, err
	}
	request := now.UTC().Format(time.RFC3339Nano)
	if _, err := edit(ctx, c, m, func(m *v1beta1.Machine) error { return requestReboot(m, request) }); err != nil {
		return rebootResult{}, err
	}
	return rebootResult{Kind: "RebootResult", Namespace: m.Namespace, Name: name, Request: request}, nil
}

// requestReboot adds the annotation. requestReboot fails if the instance cannot be rebooted now.
func requestReboot(m *v1beta1.Machine, request string) error {
	switch {
	case m.DeletionTimestamp != nil:
		return fmt.Errorf("machine %q is being deleted", m.Name)
	case m.Spec.PowerState == v1beta1.PowerStopped:
		return fmt.Errorf("machine %q is stopped: to start it, set spec.powerState to Running", m.Name)
	case machinestate.IsRebootOpen(m):
		return fmt.Errorf("machine %q is already being rebooted: \"machinist why machine/%s\" shows what the reboot waits "+
			"for", m.Name, m.Name)
	}
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1beta1.AnnotationReboot, request)
	return nil
}
