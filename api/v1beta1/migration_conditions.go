package v1beta1

// Conditions of a Migration.
const (
	// ConditionPlanned is True while the old system was read and nothing of it is in the way.
	ConditionPlanned = "Planned"

	// ConditionFenced is True while the old controllers are stopped and nobody else can change their objects. While it is
	// not, the migration does nothing else.
	ConditionFenced = "Fenced"

	// ConditionAdopted is True when every instance of the plan is Machinist's.
	ConditionAdopted = "Adopted"

	// ConditionCompleted is True when the fleet is Machinist's alone.
	ConditionCompleted = "Completed"

	// ConditionStuck is True while something is in the way that does not end by itself.
	ConditionStuck = "Stuck"
)

// Reasons of Planned.
const (
	// ReasonPlanReady surfaces when nothing is in the way of the migration.
	ReasonPlanReady = "PlanReady"

	// ReasonBlocked surfaces when a Blocker was found, a loss is not accepted, or the plan is not the one agreed to.
	ReasonBlocked = "Blocked"

	// ReasonPlanUnknown surfaces when the old system cannot be read.
	ReasonPlanUnknown = "PlanUnknown"
)

// Reasons of Fenced.
const (
	// ReasonOldControllersStopped surfaces when the fence holds.
	ReasonOldControllersStopped = "OldControllersStopped"

	// ReasonStoppingOldControllers surfaces while the fence is put up, also after something broke through it.
	ReasonStoppingOldControllers = "StoppingOldControllers"

	// ReasonFenceTakenDown surfaces when the migration has ended.
	ReasonFenceTakenDown = "FenceTakenDown"
)

// Reasons of Adopted and Completed.
const (
	// ReasonMigrating surfaces while the migration goes on.
	ReasonMigrating = "Migrating"

	// ReasonMigrated surfaces when all of it is done.
	ReasonMigrated = "Migrated"

	// ReasonAborted surfaces when the instances go back, or went back, to the old system.
	ReasonAborted = "Aborted"
)

// Reasons of Stuck.
const (
	// ReasonNothingInTheWay surfaces when the migration goes on.
	ReasonNothingInTheWay = "NothingInTheWay"

	// ReasonTroubles surfaces when something is in the way; status.troubles has it.
	ReasonTroubles = "Troubles"
)

// Keys that a migration puts on Machinist's objects.
const (
	// LabelMigration names, on what a Migration made, that Migration, until it is completed. Until it is committing
	// nobody else may delete such an object or change its specification.
	LabelMigration = "machinist.dev/migration"

	// FreezeMigration is the value of LabelFreeze on sets and deployments that a Migration made. Only that ends it.
	FreezeMigration = "Migration"

	// AnnotationMigratedFrom, on what a Migration made, names the old object: group/namespace/name/UID, or what a class or
	// Secret was made from: group/kind/name, or the group alone. It stays.
	AnnotationMigratedFrom = "machinist.dev/migrated-from"

	// AnnotationAfterMigration holds what an object gets when its Migration is completed: replicas, annotations on which
	// Machinist acts, a remediation, its deletion. It is nobody else's to set.
	AnnotationAfterMigration = "machinist.dev/after-migration"

	// AnnotationFenceProbe marks requests by which a migrator finds out whether the policy that closes the old objects is
	// in force. They are refused to everybody.
	AnnotationFenceProbe = "machinist.dev/fence-probe"

	// MigrationFinalizer holds a Migration until it is completed or aborted.
	MigrationFinalizer = "machinist.dev/migration"
)
