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
	// Ends is what happens next, or what ends the situation. It is empty for a normal situation.
	Ends string
	// Do is what an administrator can do. It is empty if there is only waiting.
	Do string
}

// MeaningOf explains the reason of a condition. An unknown reason, for example of a newer version, is only repeated.
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

// meanings are all explanations by reason, or by CONDITION/REASON if that differs. The table is built once, because a
// page needs thousands of lookups.
var meanings = sync.OnceValue(func() map[string]Meaning {
	all := launchMeanings()
	for _, more := range []map[string]Meaning{nodeMeanings(), updateMeanings(), deletionMeanings(), fleetMeanings(),
		healthMeanings(), budgetMeanings(), providerMeanings(), migrationMeanings()} {
		maps.Copy(all, more)
	}
	return all
})
