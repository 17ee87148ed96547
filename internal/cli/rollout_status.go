package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/cli/rollout"
)

func rolloutStatusCommand(env *Env) *cobra.Command {
	s := statusWait{env: env}
	cmd := onDeployment(env, &cobra.Command{
		Use:   "status",
		Short: "Show the progress of a rollout and wait until it is complete",
		Long: `Show the progress of a rollout and wait until it is complete.

The command fails if the rollout stops: the machines of the revision fail to launch, the rollout made no progress within
spec.progressDeadline, or the controller rejects the deployment. It keeps waiting while the rollout is paused or
waits for its promotion. The command succeeds when only the machines that partition keeps on old revisions are left. If
the connection to the API server breaks, the command tries again until --timeout.`,
		Example: `  # Wait at most half an hour until the rollout of "web" is complete
  machinist rollout status md/web --timeout 30m

  # Print the current state as JSON and do not wait
  machinist rollout status md/web --watch=false -o json`,
	}, s.run)
	flags := cmd.Flags()
	flags.BoolVarP(&s.watch, "watch", "w", true, "wait until the rollout is complete")
	flags.DurationVar(&s.timeout, "timeout", 0, "how long to wait, such as 30m; 0 means no limit")
	flags.Int64Var(&s.revision, "revision", 0, "fail if the rollout is of another revision; 0 accepts any revision")
	return cmd
}

type statusWait struct {
	env      *Env
	watch    bool
	timeout  time.Duration
	revision int64
}

func (s *statusWait) run(ctx context.Context, c *Cluster, name, format string) error {
	if s.timeout < 0 || s.revision < 0 {
		return fmt.Errorf("--timeout and --revision must not be negative")
	}
	commandCtx := ctx // A signal ends both contexts. The timeout ends only ctx.
	if s.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
		defer cancel()
	}
	d, err := c.deployment(ctx, name)
	if err != nil {
		return err
	}
	live := &printer.ProgressPrinter{Out: s.env.Out, Terminal: s.env.Terminal}
	var last rollout.Progress
	var machines []*v1beta1.Machine
	var machinesRead time.Time
	texts := followTexts{
		watchForbiddenAdvice: "--watch=false shows the current progress",
		onDisconnect: func(err error) {
			live.Erase()
			fmt.Fprintf(s.env.Err, "The rollout cannot be read. Trying again: %v\n", err)
		},
	}
	err = followObject(ctx, c, d, texts, func(d *v1beta1.MachineDeployment) (done bool, again time.Duration, err error) {
		now := c.clock.Now()
		// The status changes with each machine. Show each change at once, but do not list all machines each time.
		if now.Sub(machinesRead) >= rollout.RereadPeriod {
			machines, machinesRead = c.machinesOf(ctx, d), now
		}
		last = rollout.Judge(d, now).WithMachines(machines, now)
		if s.revision > 0 && last.State != rollout.StateUnobserved && last.Revision != s.revision {
			return true, 0, fmt.Errorf("machinedeployment %q: the current revision is %d, not %d", name, last.Revision,
				s.revision)
		}
		if !s.watch || last.IsDone() || last.State == rollout.StateFailed {
			return true, 0, nil
		}
		if format == asText || format == asWide {
			// A line wider than the terminal wraps and cannot be overwritten. If the width is unknown, assume 80
			// columns.
			live.Draw(last.Picture(s.env.style(format), cmp.Or(s.env.Width, 80)), last.Line())
		}
		return false, last.RecheckAfter, nil
	})
	live.Erase()
	switch {
	case err != nil && commandCtx.Err() != nil:
		return errors.New("interrupted: the rollout itself continues")
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("timed out after %s: %s", s.timeout, last.Line())
	case err != nil:
		return err
	}
	if last.State != rollout.StateFailed || format == asJSON || format == asYAML {
		if err := s.env.Print(last, format); err != nil {
			return err
		}
	}
	return last.Err()
}

// machinesOf returns the machines of a deployment, or nil if the machines cannot be listed. An error is ignored,
// because the progress can be shown without the machines.
func (c *Cluster) machinesOf(ctx context.Context, d *v1beta1.MachineDeployment) (machines []*v1beta1.Machine) {
	list := &v1beta1.MachineList{}
	if err := c.List(ctx, list, client.InNamespace(d.Namespace),
		client.MatchingLabels{v1beta1.LabelMachineDeployment: d.Name}); err != nil {
		return nil
	}
	for i := range list.Items {
		machines = append(machines, &list.Items[i])
	}
	return machines
}
