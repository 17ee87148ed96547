package v1beta1

// Conditions of a Migration.
const (
	// ConditionPlanned is True while the old system could be read and nothing prevents the migration.
	ConditionPlanned = "Planned"

	// ConditionFenced is True while the old controllers are stopped and only the migrator can change their objects. While
	// it is not True, the migration does nothing else.
	ConditionFenced = "Fenced"

	// ConditionAdopted is True when Machinist has adopted every instance of the plan.
	ConditionAdopted = "Adopted"

	// ConditionCompleted is True when only Machinist manages the fleet.
	ConditionCompleted = "Completed"

	// ConditionStuck is True while the migration waits for something that an administrator must resolve.
	ConditionStuck = "Stuck"
)

// Reasons of Planned.
const (
	// ReasonPlanReady surfaces when nothing prevents the migration.
	ReasonPlanReady = "PlanReady"

	// ReasonBlocked surfaces when a Blocker was found, a loss was not accepted, or the plan is not the one that was agreed
	// to.
	ReasonBlocked = "Blocked"

	// ReasonPlanUnknown surfaces when the old system cannot be read.
	ReasonPlanUnknown = "PlanUnknown"
)

// Reasons of Fenced.
const (
	// ReasonOldControllersStopped surfaces when the fence is in place: the old controllers are stopped and their objects
	// are protected.
	ReasonOldControllersStopped = "OldControllersStopped"

	// ReasonStoppingOldControllers surfaces when the fence is being put in place, also after a part of it was undone.
	ReasonStoppingOldControllers = "StoppingOldControllers"

	// ReasonFenceTakenDown surfaces when the migration has ended and the fence was removed.
	ReasonFenceTakenDown = "FenceTakenDown"
)

// Reasons of Adopted and Completed.
const (
	// ReasonMigrating surfaces when the migration is in progress.
	ReasonMigrating = "Migrating"

	// ReasonMigrated surfaces when the migration, or the adoption, is complete.
	ReasonMigrated = "Migrated"

	// ReasonAborted surfaces when the instances are being returned, or were returned, to the old system.
	ReasonAborted = "Aborted"
)

// Reasons of Stuck.
const (
	// ReasonNothingInTheWay surfaces when nothing prevents the migration from continuing.
	ReasonNothingInTheWay = "NothingInTheWay"

	// ReasonTroubles surfaces when something prevents the migration from continuing. The details are in status.troubles.
	ReasonTroubles = "Troubles"
)

// Keys that a migration sets on Machinist's objects.
const (
	// LabelMigration is the name of the Migration that created the object, until the Migration is completed. Until it is
	// committing, only the migrator may delete such an object or change its spec.
	//
	// On: all objects that a Migration created. Set by: the migrator.
	LabelMigration = "machinist.dev/migration"

	// FreezeMigration is the value of LabelFreeze on sets and deployments that a Migration created. Only the Migration
	// ends this freeze.
	FreezeMigration = "Migration"

	// AnnotationMigratedFrom names the old object from which a Migration created this one. The annotation stays after the
	// migration.
	//
	// On: all objects that a Migration created. Set by: the migrator.
	// Value: group/namespace/name/UID, and on a class or Secret group/kind/name of its source, or the group alone.
	AnnotationMigratedFrom = "machinist.dev/migrated-from"

	// AnnotationAfterMigration contains what an object gets when its Migration is completed: replicas, annotations on
	// which Machinist acts, a remediation, its deletion.
	//
	// On: all objects that a Migration created. Set by: the migrator.
	AnnotationAfterMigration = "machinist.dev/after-migration"

	// LabelMigrationFence is on the ConfigMaps in which a migrator records what the admission policies protect.
	//
	// On: ConfigMap. Set by: the migrator.
	// Value: the name of the provider.
	LabelMigrationFence = "machinist.dev/migration-fence"

	// LabelMigrationUse is on Secrets and ConfigMaps that a migration may use although they are in another namespace than
	// the old objects that refer to them.
	//
	// On: Secret, ConfigMap. Set by: users.
	// Value: MigrationUseAllowed.
	LabelMigrationUse = "machinist.dev/migration-use"

	// MigrationUseAllowed is the value of LabelMigrationUse.
	MigrationUseAllowed = "allowed"

	// AnnotationFenceProbe marks requests with which a migrator checks whether the policy that protects the old objects is
	// in force. The policy refuses these requests from all clients.
	//
	// On: requests that are never stored. Set by: the migrator.
	// Value: the Migration and the version of what the policy protects.
	AnnotationFenceProbe = "machinist.dev/fence-probe"

	// MigrationFinalizer keeps a Migration until it is completed or aborted.
	//
	// On: Migration. Set by: the migrator.
	MigrationFinalizer = "machinist.dev/migration"
)
