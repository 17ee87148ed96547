package why

import (
	"cmp"
	"fmt"
	"maps"
	"sync"
)

// Meaning explains a reason of a condition.
type Meaning struct {
	// Explanation describes the situation in one or two sentences.
	Explanation string
	// Ends describes what happens next, or what ends the state. It is empty if nothing has to end.
	Ends string
	// Do describes what an administrator can do. It is empty if there is nothing to do but wait.
	Do string
}

// MeaningOf returns the meaning of a reason in a condition. An unknown reason, for example of a newer version or of
// another controller, is returned as it is.
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

// meanings returns all meanings. A key is a reason, or CONDITION/REASON if the reason has another meaning in that
// condition. The table is built once, because rendering a page looks up thousands of reasons.
var meanings = sync.OnceValue(func() map[string]Meaning {
	all := launchMeanings()
	for _, more := range []map[string]Meaning{nodeMeanings(), updateMeanings(), deletionMeanings(), fleetMeanings(),
		healthMeanings(), budgetMeanings(), providerMeanings(), migrationMeanings()} {
		maps.Copy(all, more)
	}
	return all
})
