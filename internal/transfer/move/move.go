// Package move moves a fleet from one control cluster to another while its machines keep running. The move does not
// create, delete or restart any instance.
//
// At each point of the move, only one cluster acts on an instance. First, the move stops the source: it freezes the
// sets and deployments, and pauses every Machine. Then the move creates the Machines in the destination. These Machines
// adopt their instances, which still have the cluster ID of the source in their tags (see package backup). After the
// destination has adopted an instance, the move deletes the Machine of this instance from the source. The move also
// removes the finalizer of this Machine, because the provider does not act on a paused Machine. The move creates sets
// and deployments in the destination only after the instances are adopted, so that they do not replace machines that
// are still being moved.
//
// Each step stores its result in the objects of the source. If the move is interrupted, it can be started again, and
// continues from the last stored result.
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

// Move describes the move of one fleet from a control cluster to another.
type Move struct {
	// Source and Destination are clients of the two control clusters. They do not use a cache.
	Source, Destination client.Client
	// From is the cluster ID in the tags of the instances before the move, and To is the cluster ID after the move.
	From, To string
	// Namespace is the namespace to move. If it is empty, all namespaces are moved.
	Namespace string
	// Deployments are the names of MachineDeployments in Namespace. These deployments are moved with all objects that
	// belong to them. If Deployments is empty, all objects are moved.
	Deployments []string
	// Until is the end of the time in which the destination may adopt instances of the source. This time refers to the
	// clock of the destination.
	Until time.Time
	// Interval is the time between two checks while the move waits. Default: one second.
	Interval time.Duration
	// Report is called with a sentence at the start of each step, and whenever the move starts to wait for something else.
	Report func(sentence string)
}

// Plan returns what the move would do. If the move is not possible, the result contains the reasons. It changes
// nothing.
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

// Run moves the fleet, and returns after all moved objects have been deleted from the source. If ctx ends earlier, Run
// returns an error, and another Move can continue later.
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

// DestinationError is an error that comes from the destination, and not from the source.
type DestinationError struct{ err error }

func (e *DestinationError) Error() string { return "in the destination: " + e.err.Error() }

// Unwrap returns the underlying error from the destination.
func (e *DestinationError) Unwrap() error { return e.err }

func atDestination(format string, args ...any) error {
	return &DestinationError{fmt.Errorf(format, args...)}
}

// await calls the function observe repeatedly, until there is nothing left to wait for. If a write conflicts with a
// write of another client, await tries again.
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

// maxNamed is the maximum number of reasons that one report contains.
const maxNamed = 3

func summary(waiting []string) string {
	text := strings.Join(waiting[:min(len(waiting), maxNamed)], "; ")
	if more := len(waiting) - maxNamed; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// copyMachines creates the Machines in the destination. Before that, it creates the objects that the Machines need.
func (m *Move) copyMachines(ctx context.Context) error {
	if err := m.copy(ctx, "Secret", "MachineClass"); err != nil {
		return err
	}
	return m.copy(ctx, "Machine")
}

// copyOwners creates the objects in the destination that create and replace machines.
func (m *Move) copyOwners(ctx context.Context) error {
	if err := m.copy(ctx, "MachineDisruptionBudget"); err != nil {
		return err // Budgets limit the replacement of machines, so they must exist before the owners.
	}
	return m.copy(ctx, "MachineSet", "MachineDeployment", "MachineHealthCheck")
}

// copy creates all objects of the given kinds in the destination. It does not change existing objects. However, it
// permits existing classes to adopt instances.
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
			// Skip an object that was created after the move began, because the source still acts on it. Also skip a Machine
			// that is already moved.
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

// createNamespaces creates each namespace of the fleet that the destination does not have.
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
	// Moved is the number of objects to move, by kind. Shared contains the names of objects that are copied and also stay
	// in the source, because other objects there need them.
	Moved  map[string]int
	Shared []string
	// Waiting contains the names of the machines for which the move would have to wait, with the reasons.
	Waiting []string
	// Problems are the reasons why the move is not possible.
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

// String returns the numbers of objects to move, as one line.
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
