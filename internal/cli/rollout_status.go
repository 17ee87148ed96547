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
		Short: "Show how a rollout stands and wait until it is done",
		Long: `Show how a rollout stands and wait until it is done.

It ends with an error if the rollout stops by itself: the revision fails to launch, there was no progress within
spec.progressDeadline, or the deployment cannot be acted upon. A paused rollout is waited for. It goes on when the
connection to the API server breaks, for as long as --timeout lets it.`,
		Example: `  # Wait until the machines of "web" are rolled out, at most half an hour
  machinist rollout status md/web --timeout 30m

  # How it stands now, for a program
  machinist rollout status md/web --watch=false -o json`,
	}, s.run)
	flags := cmd.Flags()
	flags.BoolVarP(&s.watch, "watch", "w", true, "wait until the rollout is done")
	flags.DurationVar(&s.timeout, "timeout", 0, "how long to wait, such as 30m; 0 is for ever")
	flags.Int64Var(&s.revision, "revision", 0, "fail if another revision than this is rolled out; 0 is any")
	return cmd
}

// statusWait waits for a rollout.
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
	whole := ctx
	if s.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
		defer cancel()
	}
	d, err := c.deployment(ctx, name)
	if err != nil {
		return err
	}
	live := &printer.Live{Out: s.env.Out, Terminal: s.env.Terminal}
	var last rollout.Progress
	var machines []*v1beta1.Machine
	var read time.Time // When they were.
	beside := followed{
		unwatchable: "--watch=false shows how it stands",
		lost: func(trouble error) {
			live.Erase()
			fmt.Fprintf(s.env.Err, "The rollout cannot be read, trying again: %v\n", trouble)
		},
	}
	err = follow(ctx, c, d, beside, func(d *v1beta1.MachineDeployment) (done bool, again time.Duration, err error) {
		now := c.clock.Now()
		// The deployment changes with every machine, and is shown at once.
		if now.Sub(read) >= rollout.RereadPeriod {
			machines, read = c.machinesOf(ctx, d), now
		}
		last = rollout.Judge(d, now).WithMachines(machines, now)
		if s.revision > 0 && last.State != rollout.Unobserved && last.Revision != s.revision {
			return true, 0, fmt.Errorf("machinedeployment %q: revision %d is asked about, and %d is the one that is rolled out",
				name, s.revision, last.Revision)
		}
		if !s.watch || last.State == rollout.Complete || last.State == rollout.Failed {
			return true, 0, nil
		}
		if format == asText || format == asWide {
			// A terminal that does not say how wide it is must not be written beyond its edge: what wraps is not drawn over.
			live.Draw(last.Picture(s.env.style(format), cmp.Or(s.env.Width, 80)), last.Line())
		}
		return false, last.Again, nil
	})
	live.Erase()
	switch {
	case err != nil && whole.Err() != nil:
		return errors.New("interrupted: the rollout goes on without being watched")
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("timed out after %s: %s", s.timeout, last.Line())
	case err != nil:
		return err
	}
	if last.State != rollout.Failed || format == asJSON || format == asYAML {
		if err := s.env.Print(last, format); err != nil {
			return err
		}
	}
	return last.Err()
}

// machinesOf returns the machines of a deployment, none where they cannot be read: how it stands is known without them.
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
