package why

import (
	"cmp"
	"fmt"
	"maps"
	"sync"
)

// Meaning explains one reason that a condition can have.
type Meaning struct {
	// Explanation describes the situation in one or two sentences.
	Explanation string
	// Ends describes what happens next, or what ends the situation. It is empty if the situation is normal and need not
	// end.
	Ends string
	// The field Do describes what an administrator can do. It is empty if the administrator can only wait.
	Do string
}

// MeaningOf explains the reason in a condition. If the reason is unknown, for example because a newer version or
// another controller has set it, the explanation only repeats the reason.
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

// meanings returns the table of all meanings. A key is either a reason, or CONDITION/REASON if the reason has a special
// meaning in this condition. The table is built only once, because thousands of reasons are looked up to render one
// page.
var meanings = sync.OnceValue(func() map[string]Meaning {
	all := launchMeanings()
	for _, more := range []map[string]Meaning{nodeMeanings(), updateMeanings(), deletionMeanings(), fleetMeanings(),
		healthMeanings(), budgetMeanings(), providerMeanings(), migrationMeanings()} {
		maps.Copy(all, more)
	}
	return all
})
