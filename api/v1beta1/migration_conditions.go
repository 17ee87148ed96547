package v1beta1

// Conditions of a Migration.
const (
	// ConditionPlanned is True while the migrator can read the objects of the old system and nothing prevents the
	// migration.
	ConditionPlanned = "Planned"

	// ConditionFenced is True while the old controllers are stopped and only the migrator can change their objects.
	// Later steps of the migration wait for this condition.
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

	// ReasonBlocked surfaces when the plan contains a Blocker or a loss that no user has accepted, or when the plan has
	// changed since a user agreed to it.
	ReasonBlocked = "Blocked"

	// ReasonPlanUnknown surfaces when the migrator cannot read the objects of the old system.
	ReasonPlanUnknown = "PlanUnknown"
)

// Reasons of Fenced.
const (
	// ReasonOldControllersStopped surfaces when the old controllers are stopped and their objects are protected.
	ReasonOldControllersStopped = "OldControllersStopped"

	// ReasonStoppingOldControllers surfaces when the migrator is stopping the old controllers and protecting their
	// objects, or restores a part of this fence that another client has removed.
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

	// ReasonAborted surfaces when the migration was aborted. The migrator is returning the instances to the old system,
	// or has returned them.
	ReasonAborted = "Aborted"
)

// Reasons of Stuck.
const (
	// ReasonNothingInTheWay surfaces when the migration can continue.
	ReasonNothingInTheWay = "NothingInTheWay"

	// ReasonTroubles surfaces when the migration cannot continue because of a problem. The field status.troubles
	// describes the problem.
	ReasonTroubles = "Troubles"
)

// Keys that a migration sets on Machinist's objects.
const (
	// LabelMigration is the name of the Migration that created the object. The migrator removes the label when the
	// Migration is completed. Before the phase Cleaning, only the migrator may delete the object or change its spec.
	//
	// On: all objects that a Migration created. Set by: the migrator.
	LabelMigration = "machinist.dev/migration"

	// FreezeMigration is the value of LabelFreeze on sets and deployments of a Migration. Only the migrator removes
	// this value of the label.
	FreezeMigration = "Migration"

	// AnnotationMigratedFrom names the old system's object from which a Migration created this object. The annotation
	// remains after the migration.
	//
	// On: all objects that a Migration created. Set by: the migrator.
	// Value: group/namespace/name/UID of the old object; on a class or Secret also group/kind/name, or only the group.
	AnnotationMigratedFrom = "machinist.dev/migrated-from"

	// AnnotationAfterMigration records what the migrator changes when the Migration is completed. The migrator sets the
	// replicas, the annotations or the type of remediation, or deletes the object.
	//
	// On: all objects that a Migration created. Set by: the migrator.
	AnnotationAfterMigration = "machinist.dev/after-migration"

	// LabelMigrationFence marks a ConfigMap in which a migrator records which objects the admission policies protect.
	//
	// On: ConfigMap. Set by: the migrator.
	// Value: the name of the provider.
	LabelMigrationFence = "machinist.dev/migration-fence"

	// LabelMigrationUse allows migrations to use a Secret or ConfigMap to which old objects of other namespaces refer.
	//
	// On: Secret, ConfigMap. Set by: users.
	// Value: MigrationUseAllowed.
	LabelMigrationUse = "machinist.dev/migration-use"

	// MigrationUseAllowed is the value of LabelMigrationUse.
	MigrationUseAllowed = "allowed"

	// AnnotationPausedByMigration marks a Cluster of Cluster API that a migrator has paused. When the fence is removed,
	// the migrator restores the previous value of spec.paused and removes the annotation.
	//
	// On: Cluster. Set by: the migrator.
	// Value: the Migration and the previous value of spec.paused, as JSON.
	AnnotationPausedByMigration = "machinist.dev/paused-by-migration"

	// AnnotationFenceProbe marks a test request of the migrator. The policy that protects the old objects refuses such
	// requests from all clients. A refusal shows that the policy is in force.
	//
	// On: dry-run requests. Set by: the migrator.
	// Value: the Migration, and a hash of the record of the protected objects.
	AnnotationFenceProbe = "machinist.dev/fence-probe"

	// MigrationFinalizer prevents the removal of a deleted Migration until the Migration is completed or aborted.
	//
	// On: Migration. Set by: the migrator.
	MigrationFinalizer = "machinist.dev/migration"
)
