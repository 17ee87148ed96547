// Package move takes a fleet from one control cluster to another while its machines serve: no instance is created,
// deleted or restarted for it.
//
// One cluster acts on an instance at any time. The source is stopped first: what makes machines is frozen, and every
// Machine is paused. Then the Machines are made at the destination, which takes their instances over from the source's
// cluster id (package backup). A Machine is deleted at the source when the destination has taken its instance over, and
// its finalizer is removed by the move, because a paused Machine is not torn down. Owners come to the destination after
// the instances, so that nothing there replaces a machine that is on its way.
//
// Each step leaves its result in the objects of the source. A move that was interrupted anywhere is repeated, and goes
// on from there.
package move

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/internal/transfer/backup"
)

// Move is one fleet's way from a control cluster to another.
type Move struct {
	// Source and Destination are the two control clusters, whose objects are read without a cache.
	Source, Destination client.Client
	// From and To are their cluster ids: those by which the instances are tagged before and afterwards.
	From, To string
	// Namespace is the one that is moved; empty means all.
	Namespace string
	// Deployments, if there are any, are the MachineDeployments of Namespace that are moved, with all that belongs to
	// them. By default everything is.
	Deployments []string
	// Until is how long the destination may take instances of the source over, by its clock.
	Until time.Time
	// Interval is the time between two observations of what is waited for. Default one second.
	Interval time.Duration
	// Report receives a sentence for each step, and for each change of what it waits for.
	Report func(sentence string)
}

// Plan reads what is moved, and returns it with the reasons why that is not possible, if there are any. It changes
// nothing.
func (m *Move) Plan(ctx context.Context) (Plan, error) {
	if m.From == m.To {
		return Plan{}, fmt.Errorf("both clusters have the cluster id %s: each would take the other's instances for its own",
			m.From)
	}
	f, err := m.gather(ctx)
	if err != nil {
		return Plan{}, err
	}
	problems, err := m.problems(ctx, f)
	if err != nil {
		return Plan{}, err
	}
	return planOf(f, problems), nil
}

// Run moves the fleet, and returns when the source has nothing of it any more. It returns an error when ctx ends
// before, and can then be called again with another Move.
func (m *Move) Run(ctx context.Context) error {
	plan, err := m.Plan(ctx)
	if err != nil {
		return err
	}
	if len(plan.Problems) > 0 {
		return fmt.Errorf("nothing was changed: %s", strings.Join(plan.Problems, "; "))
	}
	for {
		for _, step := range []struct {
			what string
			run  func(context.Context) error
		}{
			{"Stopping the source: its sets and deployments are frozen, its machines paused.", m.stop},
			{"Making Secrets, classes and machines at the destination.", m.copyMachines},
			{"The destination takes the instances over.", m.handOver},
			{"Making sets, deployments and health checks at the destination.", m.copyOwners},
			{"Deleting at the source, without touching an instance.", m.remove},
		} {
			m.Report(step.what)
			if err := step.run(ctx); err != nil {
				return err
			}
		}
		f, err := m.gather(ctx)
		if err != nil {
			return err
		}
		if len(f.of("Machine", "MachineSet", "MachineDeployment")) == 0 {
			break
		}
		m.Report("More was made at the source meanwhile.")
	}
	return m.endPermission(ctx)
}

// DestinationError is an error of the destination, and not of the source.
type DestinationError struct{ err error }

func (e *DestinationError) Error() string { return "at the destination: " + e.err.Error() }

// Unwrap returns what the destination said.
func (e *DestinationError) Unwrap() error { return e.err }

func atDestination(format string, args ...any) error {
	return &DestinationError{fmt.Errorf(format, args...)}
}

// await calls observe until it names nothing any more that is waited for. Another's write that came in between is
// observed again.
func (m *Move) await(ctx context.Context, observe func(context.Context) (waiting []string, err error)) error {
	interval := m.Interval
	if interval <= 0 {
		interval = time.Second
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	last := ""
	for {
		waiting, err := observe(ctx)
		switch {
		case apierrors.IsConflict(err):
		case err != nil && ctx.Err() != nil && last != "":
			return fmt.Errorf("%w. It waited for %s", ctx.Err(), last)
		case err != nil:
			return err
		case len(waiting) == 0:
			return nil
		}
		if now := summary(waiting); now != last && len(waiting) > 0 {
			last = now
			m.Report("Waiting for " + now)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w. It waited for %s", ctx.Err(), last)
		case <-ticker.C:
		}
	}
}

// mostNamed is how many of those that are waited for are named.
const mostNamed = 3

func summary(waiting []string) string {
	text := strings.Join(waiting[:min(len(waiting), mostNamed)], "; ")
	if more := len(waiting) - mostNamed; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// copyMachines makes at the destination what a Machine needs, and the Machines whose instances it has not taken over.
func (m *Move) copyMachines(ctx context.Context) error {
	if err := m.copy(ctx, "Secret", "MachineClass"); err != nil {
		return err
	}
	return m.copy(ctx, "Machine")
}

// copyOwners makes at the destination what makes and replaces machines, and before that what limits it.
func (m *Move) copyOwners(ctx context.Context) error {
	if err := m.copy(ctx, "MachineDisruptionBudget"); err != nil {
		return err // Owners replace machines: what limits that has to be there before them.
	}
	return m.copy(ctx, "MachineSet", "MachineDeployment", "MachineHealthCheck")
}

// copy makes the objects of some kinds at the destination. What is there stays as it is, but for the permission of a
// class.
func (m *Move) copy(ctx context.Context, kinds ...string) error {
	f, err := m.gather(ctx)
	if err != nil {
		return err
	}
	if err := m.makeNamespaces(ctx, f); err != nil {
		return err
	}
	made := backup.Of(slices.DeleteFunc(f.of(kinds...), func(o *object) bool {
		switch o.GetKind() {
		case "Machine", "MachineSet", "MachineDeployment":
			return moving(o) != m.To || moved(o) // It was made meanwhile and not stopped, or is there already.
		}
		return false
	}))
	made.ClusterID = m.From
	for _, object := range made.Objects {
		mark(object, movedFrom, m.From)
	}
	var conflicts []string
	if err := made.Restore(ctx, m.Destination, m.Until, func(o *object, outcome backup.Outcome) {
		if outcome == backup.Conflict {
			conflicts = append(conflicts, nameOf(o))
		}
	}); err != nil {
		return atDestination("%w", err)
	}
	if len(conflicts) > 0 {
		return fmt.Errorf("machines with these names exist at the destination and have other instances: %s",
			strings.Join(conflicts, ", "))
	}
	return nil
}

// makeNamespaces makes those namespaces of the fleet that the destination lacks, as far as that may be known.
func (m *Move) makeNamespaces(ctx context.Context, f *fleet) error {
	done := map[string]bool{}
	for _, o := range f.objects {
		name := o.GetNamespace()
		if done[name] {
			continue
		}
		done[name] = true
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := m.Destination.Get(ctx, client.ObjectKeyFromObject(namespace), namespace); !apierrors.IsNotFound(err) {
			continue // It is there, or an object in it reports the error.
		}
		if err := m.Destination.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
			return atDestination("make namespace %s: %w", name, err)
		}
	}
	return nil
}

// Plan is what a Move does.
type Plan struct {
	// Moved counts the objects by their kinds, Shared names what is copied and stays at the source too, because
	// something there needs it.
	Moved  map[string]int
	Shared []string
	// Waiting are the machines that have to settle before they are moved, with the reason.
	Waiting []string
	// Problems are the reasons why nothing is moved.
	Problems []string
}

func planOf(f *fleet, problems []string) Plan {
	p := Plan{Moved: map[string]int{}, Problems: problems}
	for _, o := range f.objects {
		if f.shared[keyOf(o)] {
			p.Shared = append(p.Shared, nameOf(o))
			continue
		}
		p.Moved[o.GetKind()]++
		if o.GetKind() != "Machine" || moving(o) != "" {
			continue
		}
		machine, err := machineOf(o)
		if err != nil {
			p.Problems = append(p.Problems, err.Error())
		} else if why := unsettled(machine); why != "" {
			p.Waiting = append(p.Waiting, why)
		}
	}
	return p
}

// String says in one line how much is moved.
func (p Plan) String() string {
	var parts []string
	for _, kind := range backup.Kinds() {
		switch n := p.Moved[kind]; {
		case n == 0:
		case kind == "MachineClass" && n > 1:
			parts = append(parts, fmt.Sprintf("%d MachineClasses", n))
		default:
			parts = append(parts, wording.Count(n, kind))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
