package why

import (
	"cmp"
	"fmt"
	"maps"
	"sync"
)

// Meaning explains one reason of a condition.
type Meaning struct {
	// Explanation describes the situation in one or two sentences.
	Explanation string
	// NextStep holds a sentence about the next automatic step, or about the event that ends the situation. NextStep
	// is empty if nothing must happen.
	NextStep string
	// Instructions holds instructions with which an administrator can fix the problem. Instructions is empty if the
	// administrator can only wait.
	Instructions string
}

// MeaningOf explains the reason of a condition. If the reason is unknown, for example because a newer version of
// Machinist wrote it, the explanation only contains the name of the reason.
func MeaningOf(condition, reason string) Meaning {
	all := meanings()
	if m, known := all[condition+"/"+reason]; known {
		return m
	}
	if m, known := all[reason]; known {
		return m
	}
	if condition == "" {
		return Meaning{Explanation: fmt.Sprintf("The object reports %s.", cmp.Or(reason, "no reason"))}
	}
	return Meaning{Explanation: fmt.Sprintf("The condition %s reports %s.", condition, cmp.Or(reason, "no reason"))}
}

// meanings returns a map from reasons to explanations. If a reason means different things in different conditions, the
// key is CONDITION/REASON. The map is built once, because a page needs thousands of lookups.
var meanings = sync.OnceValue(func() map[string]Meaning {
	all := launchMeanings()
	for _, more := range []map[string]Meaning{nodeMeanings(), updateMeanings(), deletionMeanings(), fleetMeanings(),
		healthMeanings(), budgetMeanings(), placementMeanings(), providerMeanings(), migrationMeanings()} {
		maps.Copy(all, more)
	}
	return all
})
