package why

import "machinist.dev/machinist/api/v1beta1"

func placementMeanings() map[string]Meaning {
	const classOfDomain = "Create the class, or change the options in spec.placement."
	return map[string]Meaning{
		v1beta1.ReasonWithinMaxSkew: {Explanation: "The machines are distributed over the domains of spec.placement within maxSkew."},
		v1beta1.ReasonSkewExceeded: {
			Explanation:  "The machines are not distributed over the domains of spec.placement within maxSkew, although the domains have capacity.",
			NextStep:     "New machines go to the domains with too few machines, and a scale-down starts with the domains with too many. With rebalance WhenIdle, surplus machines are also replaced one at a time.",
			Instructions: "To restore the distribution without a change of replicas, set spec.placement.rebalance to WhenIdle.",
		},
		v1beta1.ReasonBoundsReached: {
			Explanation:  "Machines are missing, because each domain of spec.placement has maxReplicas machines.",
			NextStep:     "The machines are created when a domain may have more.",
			Instructions: "Increase maxReplicas of a domain, add a domain, or reduce replicas.",
		},
		v1beta1.ConditionBalanced + "/" + v1beta1.ReasonInsufficientResources: {
			Explanation:  "The cloud has no capacity in a domain of spec.placement. Therefore, machines wait, or they are not distributed within maxSkew.",
			NextStep:     "One machine at a time finds out when the cloud has capacity again. Then new machines go to the domains with too few machines.",
			Instructions: "Raise the quota, or add another class to the options of the domain.",
		},
		v1beta1.ConditionBalanced + "/" + v1beta1.ReasonClassNotFound: {
			Explanation:  "Machines are missing or are in other domains, because no class of a domain can be used: the classes do not exist, are being deleted, or are rejected by the provider.",
			NextStep:     "The domain gets machines when one of its classes can be used.",
			Instructions: classOfDomain,
		},
		v1beta1.ReasonOtherClass: {
			Explanation:  "The set does not adopt a matching machine without an owner, because the class of the machine is not an option of spec.placement.",
			NextStep:     "The set adopts the machine when the class is an option and the set has too few machines.",
			Instructions: "Add the class to a domain of spec.placement, or delete the machine, or remove its labels.",
		},
		v1beta1.ReasonCapacityFound: {Explanation: "The cloud has capacity for the class again."},
	}
}
