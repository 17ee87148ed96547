package why

import "machinist.dev/machinist/api/v1beta1"

// migrationMeanings are the reasons of Planned, Fenced, Adopted, Completed and Stuck on a Migration.
func migrationMeanings() map[string]Meaning {
	return map[string]Meaning{
		v1beta1.ReasonPlanReady: {Explanation: "The old system was read, and nothing of it is in the way.",
			Ends: "It goes on when spec.stage is raised and spec.planHash names the plan."},
		v1beta1.ReasonBlocked: {Explanation: "The plan has something in it that must be settled before anything is changed.",
			Ends: "It goes on when each Blocker is gone and each loss is accepted.",
			Do:   "See `machinist migrate plan` for the objects and fields."},
		v1beta1.ReasonPlanUnknown: {Explanation: "The old system cannot be read as a whole.",
			Ends: "It is tried again by itself.", Do: "See the message for what could not be read."},
		v1beta1.ReasonOldControllersStopped: {Explanation: "The old controllers are stopped, and their objects are closed to others.",
			Ends: "It ends with the migration."},
		v1beta1.ReasonStoppingOldControllers: {Explanation: "The old controllers are being stopped. Until they are, nothing else is done.",
			Ends: "It goes on when no pod of theirs is left, their Leases are taken and the policy is in force.",
			Do:   "Where something scales them up again, stop that first."},
		v1beta1.ReasonFenceTakenDown: {Explanation: "The migration has ended, and the old objects are open again or gone.",
			Ends: "It stays so."},
		v1beta1.ReasonMigrating: {Explanation: "The migration goes on.", Ends: "See status.phase for what it is doing."},
		v1beta1.ReasonMigrated:  {Explanation: "This part of the migration is done.", Ends: "It stays so."},
		v1beta1.ReasonAborted:   {Explanation: "The instances go back to the old system, or went back.", Ends: "It stays so."},
		v1beta1.ReasonNothingInTheWay: {Explanation: "Nothing is in the way of the migration.",
			Ends: "It stays so until something is."},
		v1beta1.ReasonTroubles: {Explanation: "Something is in the way of the migration that does not end by itself.",
			Ends: "It goes on when that is settled; other objects go on meanwhile.", Do: "See status.troubles."},
	}
}
