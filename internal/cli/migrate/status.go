package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
)

// Status is how far a migration is.
type Status struct {
	// Kind is MigrationStatus.
	Kind string `json:"kind"`
	// Now is the time at which it was so.
	Now       time.Time `json:"now"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// Source, SourceNamespace and Provider say which fleet goes where.
	Source          string `json:"source"`
	SourceNamespace string `json:"sourceNamespace"`
	Provider        string `json:"provider"`
	// Stage is how far it may go, Phase what it is doing. Phase is empty until a migrator acts upon it.
	Stage v1beta1.MigrationStage `json:"stage"`
	Phase v1beta1.MigrationPhase `json:"phase,omitempty"`
	// Observed says that a migrator has acted upon the present specification.
	Observed bool                    `json:"observed"`
	Created  time.Time               `json:"created"`
	Deleted  *time.Time              `json:"deleted,omitempty"`
	PlanHash string                  `json:"planHash,omitempty"`
	Machines v1beta1.MigrationCounts `json:"machines"`
	// Blockers and Losses are the codes of what keeps it from beginning: Losses those that nobody has accepted.
	Blockers []string `json:"blockers,omitempty"`
	Losses   []string `json:"losses,omitempty"`
	// Stopped are the workloads that the migration scaled to 0.
	Stopped    []v1beta1.StoppedWorkload `json:"stopped,omitempty"`
	Conditions []metav1.Condition        `json:"conditions,omitempty"`
	Troubles   []string                  `json:"troubles,omitempty"`
	// Migrator is the process that works on it, nil where that matters no more.
	Migrator *why.Process `json:"migrator,omitempty"`
	// Next says what happens next, Commands what leads further.
	Next     string    `json:"next"`
	Commands []Command `json:"commands,omitempty"`
	// Unread says what could not be read, and why.
	Unread []string `json:"unread,omitempty"`
}

// Command is one that leads further.
type Command struct {
	Command string `json:"command"`
	// Does says what it does.
	Does string `json:"does"`
}

// List is several migrations.
type List struct {
	// Kind is MigrationStatuses.
	Kind string `json:"kind"`
	// Namespace is the one that was read, empty for all.
	Namespace string   `json:"namespace,omitempty"`
	Items     []Status `json:"items"`
}

// StatusOf says how far a migration is. migrator is the process of its provider, nil if that was not found out.
func StatusOf(m *v1beta1.Migration, now time.Time, migrator *why.Process) Status {
	plan := PlanOf(m, Pages{})
	s := Status{
		Kind: "MigrationStatus", Now: now.UTC(), Namespace: m.Namespace, Name: m.Name,
		Source: m.Spec.Source, SourceNamespace: m.SourceNamespaceOrDefault(), Provider: m.Spec.Provider,
		Stage: cmp.Or(m.Spec.Stage, v1beta1.MigrationPlan), Phase: m.Status.Phase, Observed: Observed(m),
		Created: m.CreationTimestamp.UTC(), PlanHash: m.Status.PlanHash, Machines: m.Status.Machines,
		Stopped: m.Status.Fence.Workloads, Conditions: m.Status.Conditions, Troubles: Troubles(m), Migrator: migrator,
	}
	if m.DeletionTimestamp != nil {
		deleted := m.DeletionTimestamp.UTC()
		s.Deleted = &deleted
	}
	if phaseOf(m) == v1beta1.MigrationPlanning {
		s.Blockers, s.Losses = plan.Blockers(), plan.Open()
	}
	s.Next, s.Commands = next(m, plan)
	return s
}

// ListOf says how far several migrations are, those that have ended last.
func ListOf(namespace string, items []Status) List {
	items = slices.Clone(items)
	slices.SortFunc(items, func(a, b Status) int {
		ended := func(s Status) int {
			if s.Phase.Ended() {
				return 1
			}
			return 0
		}
		return cmp.Or(ended(a)-ended(b), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return List{Kind: "MigrationStatuses", Namespace: namespace, Items: items}
}

// next says what happens next, and what leads further.
func next(m *v1beta1.Migration, plan Plan) (string, []Command) {
	run := func(verb, flags, does string) Command {
		return Command{Command: strings.TrimSpace("machinist migrate " + verb + " " + Reference(m) + flags), Does: does}
	}
	abort := run("abort", "", "gives the fleet back to the old system")
	phase := phaseOf(m)
	switch {
	case phase == v1beta1.MigrationCompleted:
		return "Nothing: the fleet is Machinist's. The record can be deleted.", []Command{
			{"kubectl delete migration " + Reference(m), "deletes the record"}}
	case phase == v1beta1.MigrationAborted:
		return "Nothing: the fleet is the old system's again. Another try needs another Migration.", []Command{
			{"kubectl delete migration " + Reference(m), "deletes the record, so that its name is free"}}
	case phase.Irrevocable():
		return "It goes on by itself until the old objects are gone. There is no way back.", nil
	case m.Spec.Stage == v1beta1.MigrationAbort, m.DeletionTimestamp != nil:
		return "It gives the instances back, removes Machinist's objects, and starts the old system again.", nil
	case blocking(m) != nil && phase == v1beta1.MigrationPlanning && len(plan.Blockers())+len(plan.Open()) > 0:
		commands := []Command{run("plan", "", "shows the plan")}
		if open := plan.Open(); len(open) > 0 {
			commands = append(commands, run("run", " --accept "+strings.Join(open, ","), "accepts the losses"))
		}
		return "Nothing, until the Blockers are settled and the losses accepted.", append(commands, abort)
	case blocking(m) != nil:
		return "It waits until the plan is the one that was agreed to. If it stays another one, abort, and make another Migration.",
			[]Command{run("plan", " --all", "shows the plan as it is now"), abort}
	case m.Spec.Stage == v1beta1.MigrationCommit:
		return "It commits by itself when all instances are adopted. Until then it can be aborted.", []Command{abort}
	case phase == v1beta1.MigrationAdopted:
		return "It waits for you. Check Machines, Nodes and workloads for as long as you like.", []Command{
			run("commit", "", "removes the old objects; there is no way back"), abort}
	case m.Spec.Stage == v1beta1.MigrationAdopt:
		return "It goes on by itself until all instances are adopted, and then waits for you.", []Command{abort}
	case !Planned(m):
		return "The migrator reads the old system. Nothing is changed.", nil
	case len(plan.Blockers()) > 0:
		return "Nothing, until the Blockers are settled.", []Command{run("plan", "", "shows them")}
	}
	accept, does := "", "stops the old system and adopts the instances"
	if open := plan.Open(); len(open) > 0 {
		accept, does = " --accept "+strings.Join(open, ","), "accepts the losses, stops the old system and adopts the instances"
	}
	return "It waits for you. Nothing is changed.", []Command{run("plan", "", "shows the plan"), run("run", accept, does)}
}

// absent says that no migrator works on the migration, empty if one does or that is not known.
func (s Status) absent() string {
	if s.Migrator == nil || s.Phase.Ended() {
		return ""
	}
	return Absent(*s.Migrator)
}

// Absent says that no migrator runs and what to do, empty if one runs or that is not known.
func Absent(p why.Process) string {
	const do = "Install it with the value migrator.enabled=true of the chart machinist-provider."
	switch {
	case p.Known && !p.Running:
		return fmt.Sprintf("No process %s is running, so nothing goes on. Start it, or see why it does not stay up.", p.Name)
	case !p.Known && len(p.Searched) > 0:
		return fmt.Sprintf("No process %s is known: it has no Lease in %s. %s", p.Name, strings.Join(p.Searched, ", "), do)
	}
	return ""
}

// condition returns a condition of the migration, nil if there is none.
func (s Status) condition(kind string) *metav1.Condition {
	return meta.FindStatusCondition(s.Conditions, kind)
}
