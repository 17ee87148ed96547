// Package move moves a fleet from one control cluster to another while its machines keep running. It creates, deletes
// and restarts no instance.
//
// At any time, only one cluster acts on an instance. The source is stopped first: sets and deployments are frozen, and
// every Machine is paused. Then the Machines are created in the destination, which adopts their instances from the
// cluster ID of the source (package backup). A Machine is deleted from the source after the destination has adopted its
// instance. The move removes its finalizer, because a paused Machine is not torn down. Sets and deployments are created
// in the destination after the instances are adopted, so that nothing there replaces a machine that is being moved.
//
// Each step records its result in the objects of the source. A move that was interrupted at any point can be repeated,
// and continues from there.
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

// Move moves one fleet from a control cluster to another.
type Move struct {
	// Source and Destination are clients of the two control clusters. They read without a cache.
	Source, Destination client.Client
	// From and To are the cluster IDs in the tags of the instances before and after the move.
	From, To string
	// Namespace is the namespace to move. Empty means all.
	Namespace string
	// Deployments are the MachineDeployments in Namespace to move, with all objects that belong to them. If it is empty,
	// everything is moved.
	Deployments []string
	// Until is the time, by the destination's clock, until which the destination may adopt instances of the source.
	Until time.Time
	// Interval is the time between two checks while waiting. Default: one second.
	Interval time.Duration
	// Report receives a sentence for each step, and for each change of what the move waits for.
	Report func(sentence string)
}

// Plan returns what would be moved, and the reasons why that is not possible, if any. It changes nothing.
func (m *Move) Plan(ctx context.Context) (Plan, error) {
	if m.From == m.To {
		return Plan{}, fmt.Errorf("both clusters have the cluster ID %s: each would treat the other's instances as its "+
			"own", m.From)
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

// Run moves the fleet and returns when nothing of it is left in the source. If ctx ends before, Run returns an error.
// Another Move can then continue.
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
			{"Freezing the sets and deployments of the source, and pausing its machines.", m.stop},
			{"Creating Secrets, classes and machines in the destination.", m.copyMachines},
			{"The destination adopts the instances.", m.handOver},
			{"Creating sets, deployments and health checks in the destination.", m.copyOwners},
			{"Deleting the objects from the source. Instances and Nodes stay.", m.remove},
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
		if len(f.ofKinds("Machine", "MachineSet", "MachineDeployment")) == 0 {
			break
		}
		m.Report("More objects were created in the source meanwhile. Repeating the steps for them.")
	}
	return m.revokePermission(ctx)
}

// DestinationError is an error of the destination, not of the source.
type DestinationError struct{ err error }

func (e *DestinationError) Error() string { return "in the destination: " + e.err.Error() }

// Unwrap returns the error of the destination.
func (e *DestinationError) Unwrap() error { return e.err }

func atDestination(format string, args ...any) error {
	return &DestinationError{fmt.Errorf(format, args...)}
}

// await calls observe until it returns nothing more to wait for. It retries conflicts with the writes of other clients.
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
			return fmt.Errorf("%w while waiting for %s", ctx.Err(), last)
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
			return fmt.Errorf("%w while waiting for %s", ctx.Err(), last)
		case <-ticker.C:
		}
	}
}

// maxNamed is the maximum number of reasons that a report names.
const maxNamed = 3

func summary(waiting []string) string {
	text := strings.Join(waiting[:min(len(waiting), maxNamed)], "; ")
	if more := len(waiting) - maxNamed; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// copyMachines creates in the destination the objects that Machines need, and then the Machines.
func (m *Move) copyMachines(ctx context.Context) error {
	if err := m.copy(ctx, "Secret", "MachineClass"); err != nil {
		return err
	}
	return m.copy(ctx, "Machine")
}

// copyOwners creates in the destination the objects that create and replace machines.
func (m *Move) copyOwners(ctx context.Context) error {
	if err := m.copy(ctx, "MachineDisruptionBudget"); err != nil {
		return err // Budgets limit the replacement of machines, so they must exist before the owners.
	}
	return m.copy(ctx, "MachineSet", "MachineDeployment", "MachineHealthCheck")
}

// copy creates the objects of some kinds in the destination. Existing objects stay unchanged, except for the permission
// of a class to adopt instances.
func (m *Move) copy(ctx context.Context, kinds ...string) error {
	f, err := m.gather(ctx)
	if err != nil {
		return err
	}
	if err := m.createNamespaces(ctx, f); err != nil {
		return err
	}
	made := backup.Of(slices.DeleteFunc(f.ofKinds(kinds...), func(o *object) bool {
		switch o.GetKind() {
		case "Machine", "MachineSet", "MachineDeployment":
			// The object was created meanwhile and is not stopped, or its Machine is already moved.
			return destinationOf(o) != m.To || moved(o)
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
		return fmt.Errorf("machines with these names exist in the destination and have other instances: %s",
			strings.Join(conflicts, ", "))
	}
	return nil
}

// createNamespaces creates the namespaces of the fleet that do not exist in the destination.
func (m *Move) createNamespaces(ctx context.Context, f *fleet) error {
	done := map[string]bool{}
	for _, o := range f.objects {
		name := o.GetNamespace()
		if done[name] {
			continue
		}
		done[name] = true
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := m.Destination.Get(ctx, client.ObjectKeyFromObject(namespace), namespace); !apierrors.IsNotFound(err) {
			continue // The namespace exists. If it cannot be read, the creation of its objects reports the error.
		}
		if err := m.Destination.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
			return atDestination("create namespace %s: %w", name, err)
		}
	}
	return nil
}

// Plan is the result of Move.Plan.
type Plan struct {
	// Moved counts the objects to move by kind. Shared names objects that are copied and also stay in the source, because
	// something there needs them.
	Moved  map[string]int
	Shared []string
	// Waiting names the machines that the move would wait for, with the reason.
	Waiting []string
	// Problems are the reasons why nothing can be moved.
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
		if o.GetKind() != "Machine" || destinationOf(o) != "" {
			continue
		}
		machine, err := machineOf(o)
		if err != nil {
			p.Problems = append(p.Problems, err.Error())
		} else if why := unfinished(machine); why != "" {
			p.Waiting = append(p.Waiting, why)
		}
	}
	return p
}

// String returns the number of objects to move on one line.
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
