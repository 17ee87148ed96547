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

// Status is the status of a migration.
type Status struct {
	// Kind is always MigrationStatus.
	Kind string `json:"kind"`
	// Now holds the time when the Migration was read.
	Now       time.Time `json:"now"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// Source and SourceNamespace identify the old fleet. Provider is its new provider.
	Source          string `json:"source"`
	SourceNamespace string `json:"sourceNamespace"`
	Provider        string `json:"provider"`
	// Stage is the last stage that the user permits. Phase is what the migration is doing, or empty before the first
	// pass.
	Stage v1beta1.MigrationStage `json:"stage"`
	Phase v1beta1.MigrationPhase `json:"phase,omitempty"`
	// Observed is true if a migrator has processed the current specification.
	Observed bool                    `json:"observed"`
	Created  time.Time               `json:"created"`
	Deleted  *time.Time              `json:"deleted,omitempty"`
	PlanHash string                  `json:"planHash,omitempty"`
	Machines v1beta1.MigrationCounts `json:"machines"`
	// Blockers and Losses are the codes that prevent the start. Accepted losses are not included.
	Blockers []string `json:"blockers,omitempty"`
	Losses   []string `json:"losses,omitempty"`
	// StoppedWorkloads lists the workloads that the migration scaled to 0.
	StoppedWorkloads []v1beta1.StoppedWorkload `json:"stopped,omitempty"`
	Conditions       []metav1.Condition        `json:"conditions,omitempty"`
	Troubles         []string                  `json:"troubles,omitempty"`
	// Migrator describes the process that performs the migration. Migrator is nil after the end of the migration, or if
	// the Leases were not read.
	Migrator *why.Process `json:"migrator,omitempty"`
	// NextStep describes how the migration continues, in one or two sentences. Commands lists the commands that
	// continue or abort the migration.
	NextStep string    `json:"next"`
	Commands []Command `json:"commands,omitempty"`
	// ReadErrors holds error messages: one sentence for each kind of object that could not be read.
	ReadErrors []string `json:"unread,omitempty"`

	// effect describes the phase.
	effect string
}

// Command is a command that the user can run for a migration.
type Command struct {
	Command string `json:"command"`
	// Effect holds a description of the command's effect.
	Effect string `json:"does"`
}

// List holds the statuses of all migrations in a namespace or cluster.
type List struct {
	// Kind is always MigrationStatuses.
	Kind string `json:"kind"`
	// Namespace is the namespace that was read. Empty means all namespaces.
	Namespace string   `json:"namespace,omitempty"`
	Items     []Status `json:"items"`
}

// StatusOf computes the status of a migration. The migrator is nil if its state is unknown.
func StatusOf(m *v1beta1.Migration, now time.Time, migrator *why.Process) Status {
	plan := PlanOf(m, Pages{})
	s := Status{
		Kind: "MigrationStatus", Now: now.UTC(), Namespace: m.Namespace, Name: m.Name,
		Source: m.Spec.Source, SourceNamespace: m.SourceNamespaceOrDefault(), Provider: m.Spec.Provider,
		Stage: cmp.Or(m.Spec.Stage, v1beta1.MigrationPlan), Phase: m.Status.Phase, Observed: IsObserved(m),
		Created: m.CreationTimestamp.UTC(), PlanHash: m.Status.PlanHash, Machines: m.Status.Machines,
		StoppedWorkloads: m.Status.Fence.Workloads, Conditions: m.Status.Conditions, Troubles: Problems(m),
		Migrator: migrator, effect: effectOf(m),
	}
	if m.DeletionTimestamp != nil {
		deleted := m.DeletionTimestamp.UTC()
		s.Deleted = &deleted
	}
	if phaseOf(m) == v1beta1.MigrationPlanning {
		s.Blockers, s.Losses = plan.Blockers(), plan.Open()
	}
	s.NextStep, s.Commands = next(m, plan)
	if m.Spec.Instances != nil {
		for i, c := range s.Commands {
			s.Commands[i].Effect = withoutOldSystem.Replace(c.Effect)
		}
		s.NextStep = withoutOldSystem.Replace(s.NextStep)
	}
	return s
}

// ListOf sorts migrations by name, with ended migrations last.
func ListOf(namespace string, items []Status) List {
	items = slices.Clone(items)
	slices.SortFunc(items, func(a, b Status) int {
		ended := func(s Status) int {
			if s.Phase.HasEnded() {
				return 1
			}
			return 0
		}
		return cmp.Or(ended(a)-ended(b), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return List{Kind: "MigrationStatuses", Namespace: namespace, Items: items}
}

// withoutOldSystem rewrites the texts for a migration of instances that no system manages.
var withoutOldSystem = strings.NewReplacer("stops the old system and adopts", "adopts",
	"returns the fleet to the old system", "gives the instances back",
	"removes the old objects; this cannot be undone", "ends the adoption; this cannot be undone",
	"until the old objects are gone", "until the adoption has ended",
	", removes Machinist's objects, and starts the old system again", " and removes Machinist's objects",
	"The migrator reads the old system", "The migrator looks for instances",
	"the migrator reads the old system", "the migrator looks for instances",
	"Machinist manages all instances, and the old objects still exist", "Machinist manages all instances",
	"the old system manages the fleet again", "the instances have no Machines")

func next(m *v1beta1.Migration, plan Plan) (string, []Command) {
	run := func(verb, flags, does string) Command {
		return Command{Command: strings.TrimSpace("machinist migrate " + verb + " " + Reference(m) + flags), Effect: does}
	}
	abort := run("abort", "", "returns the fleet to the old system")
	phase := phaseOf(m)
	switch {
	case phase == v1beta1.MigrationCompleted:
		return "Nothing. The migration is completed, and its record can be deleted.", []Command{
			{"kubectl delete migration " + Reference(m), "deletes the record"}}
	case phase == v1beta1.MigrationAborted:
		return "Nothing. The migration is aborted. To try again, create another Migration.", []Command{
			{"kubectl delete migration " + Reference(m), "deletes the record, so that its name can be used again"}}
	case phase.Irrevocable():
		return "The migration continues automatically until the old objects are gone. It can no longer be aborted.", nil
	case m.Spec.Stage == v1beta1.MigrationAbort, m.DeletionTimestamp != nil:
		return "The migrator gives the instances back, removes Machinist's objects, and starts the old system again.", nil
	case blocking(m) != nil && phase == v1beta1.MigrationPlanning && len(plan.Blockers())+len(plan.Open()) > 0:
		commands := []Command{run("plan", "", "shows the plan")}
		if open := plan.Open(); len(open) > 0 {
			commands = append(commands, run("run", " --accept "+strings.Join(open, ","), "accepts the losses"))
		}
		return "The migration waits until you fix the Blockers and accept the losses.", append(commands, abort)
	case blocking(m) != nil:
		return "The migration waits, because the plan is not the one that you agreed to. If the plan does not change back, abort the migration and create another Migration.",
			[]Command{run("plan", " --all", "shows the current plan"), abort}
	case m.Spec.Stage == v1beta1.MigrationCommit:
		return "The migration commits automatically when all instances are adopted. You can abort the migration until all instances are adopted.",
			[]Command{abort}
	case phase == v1beta1.MigrationAdopted:
		return "The migration waits for you. Check Machines, Nodes and workloads for as long as you like.", []Command{
			run("commit", "", "removes the old objects; this cannot be undone"), abort}
	case m.Spec.Stage == v1beta1.MigrationAdopt:
		return "The migration continues automatically until all instances are adopted, and then waits for you.",
			[]Command{abort}
	case !HasPlan(m):
		return "The migrator reads the old system. Nothing is changed.", nil
	case len(plan.Blockers()) > 0:
		return "The migration waits until you fix the Blockers.", []Command{run("plan", "", "shows the Blockers")}
	}
	accept, does := "", "stops the old system and adopts the instances"
	if open := plan.Open(); len(open) > 0 {
		accept, does = " --accept "+strings.Join(open, ","), "accepts the losses, stops the old system and adopts the instances"
	}
	return "The migration waits for you. Nothing was changed.", []Command{run("plan", "", "shows the plan"),
		run("run", accept, does)}
}

// absenceWarning returns a warning if the migrator of an unfinished migration is not running, or "".
func (s Status) absenceWarning() string {
	if s.Migrator == nil || s.Phase.HasEnded() {
		return ""
	}
	return AbsenceWarning(*s.Migrator)
}

// AbsenceWarning returns a warning with advice if the migrator is not running, or "".
func AbsenceWarning(p why.Process) string {
	const do = "Install the migrator with the value migrator.enabled=true of the chart machinist-provider."
	switch {
	case p.IsKnown && !p.IsRunning:
		return fmt.Sprintf("The process %s is not running, so the migration does not continue. Start the process, or find out why it exits.", p.Name)
	case !p.IsKnown && len(p.Searched) > 0:
		return fmt.Sprintf("The process %s was not found: it has no Lease in %s. %s", p.Name,
			strings.Join(p.Searched, ", "), do)
	}
	return ""
}

func (s Status) condition(kind string) *metav1.Condition {
	return meta.FindStatusCondition(s.Conditions, kind)
}
