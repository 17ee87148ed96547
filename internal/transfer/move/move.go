// Package move moves a fleet from one control cluster to another while its machines keep running. A move creates,
// deletes and restarts no instance.
//
// At any time, only one cluster acts on an instance. The move has these steps:
//
//   - It freezes the sets and deployments of the source, and pauses every Machine.
//   - It creates the Machines in the destination, which adopt their instances (see package backup).
//   - It deletes each adopted Machine from the source, and removes Machinist's finalizer from the Machine. The provider
//     would not remove the finalizer, because the Machine is paused.
//   - It creates the sets and deployments in the destination. This is the last step, because a set replaces machines
//     that are missing in the destination.
//
// Each step stores its result in the objects of the source, so an interrupted move can be started again.
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

// Move holds the settings for moving one fleet from a control cluster to another: the clusters and the objects to move.
type Move struct {
	// Source and Destination are uncached clients of the two control clusters.
	Source, Destination client.Client
	// SourceID and DestinationID are the cluster IDs in the tags of the instances before and after the move.
	SourceID, DestinationID string
	// Namespace is the namespace to move. Empty means all namespaces.
	Namespace string
	// Deployments are names of MachineDeployments in Namespace, which are moved with all objects that belong to them.
	// Empty means all objects.
	Deployments []string
	// PermissionEnd holds the time at which the permission to adopt instances of the source ends, by the
	// destination's clock.
	PermissionEnd time.Time
	// Interval is the time between two checks while the move waits. The default is one second.
	Interval time.Duration
	// Report is called with a sentence at each step, and when the move waits for something else.
	Report func(sentence string)
}

// Plan returns what the move would do, or why it is impossible. Plan changes nothing.
func (m *Move) Plan(ctx context.Context) (Plan, error) {
	if m.SourceID == m.DestinationID {
		return Plan{}, fmt.Errorf("both clusters have the cluster ID %s: each would treat the other's instances as its "+
			"own", m.SourceID)
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

// Run moves the fleet, and returns when the source has deleted all moved objects. After an error, another Move can
// continue.
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
		m.Report("More objects were created in the source during the move. The move repeats its steps for these objects.")
	}
	return m.revokePermission(ctx)
}

// DestinationError is an error of the destination, not of the source.
type DestinationError struct{ err error }

func (e *DestinationError) Error() string { return "in the destination: " + e.err.Error() }

// Unwrap returns the underlying error.
func (e *DestinationError) Unwrap() error { return e.err }

func atDestination(format string, args ...any) error {
	return &DestinationError{fmt.Errorf(format, args...)}
}

// await calls the function observe again and again, until this function returns an empty list. A conflict is not an
// error: await calls the function again.
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

// maxNamed limits how many reasons one report contains.
const maxNamed = 3

func summary(waiting []string) string {
	text := strings.Join(waiting[:min(len(waiting), maxNamed)], "; ")
	if more := len(waiting) - maxNamed; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// copyMachines creates the Machines in the destination, after the objects that they need.
func (m *Move) copyMachines(ctx context.Context) error {
	if err := m.createKinds(ctx, "Secret", "MachineClass"); err != nil {
		return err
	}
	return m.createKinds(ctx, "Machine")
}

func (m *Move) copyOwners(ctx context.Context) error {
	if err := m.createKinds(ctx, "MachineDisruptionBudget"); err != nil {
		return err // Create the budgets before the owners, because budgets limit the replacement of machines.
	}
	return m.createKinds(ctx, "MachineSet", "MachineDeployment", "MachineHealthCheck")
}

// createKinds creates all objects of the given kinds in the destination. Existing objects stay unchanged, but existing
// classes permit the adoption of instances.
func (m *Move) createKinds(ctx context.Context, kinds ...string) error {
	f, err := m.gather(ctx)
	if err != nil {
		return err
	}
	if err := m.createNamespaces(ctx, f); err != nil {
		return err
	}
	made := backup.FromObjects(slices.DeleteFunc(f.ofKinds(kinds...), func(o *object) bool {
		switch o.GetKind() {
		case "Machine", "MachineSet", "MachineDeployment":
			// Skip an object that was created after the move began, because the source still acts on it. Skip a moved
			// Machine.
			return destinationOf(o) != m.DestinationID || isMoved(o)
		}
		return false
	}))
	made.ClusterID = m.SourceID
	for _, object := range made.Objects {
		mark(object, movedFrom, m.SourceID)
	}
	var conflicts []string
	if err := made.Restore(ctx, m.Destination, m.PermissionEnd, func(o *object, outcome backup.Outcome) {
		if outcome == backup.OutcomeConflict {
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
			continue // If the namespace cannot be read, the creation of its objects reports the error.
		}
		if err := m.Destination.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
			return atDestination("create namespace %s: %w", name, err)
		}
	}
	return nil
}

// Plan describes what a move would do: the objects to move, the expected waits and the problems.
type Plan struct {
	// Moved maps a kind to the number of objects to move. Shared lists the objects that are copied to the destination
	// but also stay in the source, because other objects in the source need these objects.
	Moved  map[string]int
	Shared []string
	// WaitingMachines names the machines for which the move would wait, with the reasons.
	WaitingMachines []string
	// Problems are the reasons why the move is impossible.
	Problems []string
}

func planOf(f *fleet, problems []string) Plan {
	p := Plan{Moved: map[string]int{}, Problems: problems}
	for _, o := range f.objects {
		if f.sharedKeys[keyOf(o)] {
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
		} else if why := unfinishedReason(machine); why != "" {
			p.WaitingMachines = append(p.WaitingMachines, why)
		}
	}
	return p
}

// String returns the numbers of objects to move as one line.
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
