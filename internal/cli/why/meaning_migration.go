package why

import "machinist.dev/machinist/api/v1beta1"

func migrationMeanings() map[string]Meaning {
	const final = "This is the final state."
	return map[string]Meaning{
		v1beta1.ReasonPlanReady: {Explanation: "The plan is ready: the migrator has read the old system and found no obstacle.",
			NextStep: "The migration continues when spec.stage is raised and spec.planHash has the hash of the plan."},
		v1beta1.ReasonBlocked: {Explanation: "The plan has a problem that must be solved before the migration changes anything.",
			NextStep:     "The migration continues when no Blocker is left, all losses are accepted, and the plan is the one that you agreed to.",
			Instructions: "To see the objects and fields, run machinist migrate plan NAME --all."},
		v1beta1.ReasonPlanUnknown: {Explanation: "The migrator cannot read the old system completely.",
			NextStep:     "The migrator tries again automatically.",
			Instructions: "The message says what cannot be read."},
		v1beta1.ReasonOldControllersStopped: {Explanation: "The old controllers are stopped, and other clients cannot change their objects.",
			NextStep: "This protection lasts until the end of the migration."},
		v1beta1.ReasonStoppingOldControllers: {Explanation: "The migrator is stopping the old controllers, and does nothing else until they are stopped.",
			NextStep:     "The migration continues when all their pods are gone, the migrator holds their Leases and the admission policy is in force.",
			Instructions: "If another controller scales the old controllers up again, stop that controller first."},
		v1beta1.ReasonFenceTakenDown: {Explanation: "The migration has ended. The old objects can be changed again, or are gone.",
			NextStep: final},
		v1beta1.ReasonMigrating: {Explanation: "The migration is in progress.", NextStep: "See status.phase for the current step."},
		v1beta1.ReasonMigrated:  {Explanation: "This part of the migration is done.", NextStep: final},
		v1beta1.ReasonAborted:   {Explanation: "The migration was aborted. The instances are returned to the old system.", NextStep: final},
		v1beta1.ReasonNothingInTheWay: {Explanation: "Nothing blocks the migration.",
			NextStep: "The condition changes when a problem occurs."},
		v1beta1.ReasonTroubles: {Explanation: "The migration has a problem that does not end automatically.",
			NextStep:     "The migration of the affected objects continues when the problem is solved. The migration of other objects continues in the meantime.",
			Instructions: "Solve the problems that the message names."},
	}
}
