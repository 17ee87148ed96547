package why

import (
	"cmp"
	"fmt"
	"maps"
	"sync"
)

// Meaning is what a reason means to a person.
type Meaning struct {
	// Explanation is a sentence.
	Explanation string
	// Ends says what ends it, empty where nothing has to.
	Ends string
	// Do says what a person can do, empty where there is nothing to do but wait.
	Do string
}

// MeaningOf returns what a reason means in a condition. A reason that is not known, of a newer version or of somebody
// else, stands for itself.
func MeaningOf(condition, reason string) Meaning {
	all := meanings()
	if m, known := all[condition+"/"+reason]; known {
		return m
	}
	if m, known := all[reason]; known {
		return m
	}
	return Meaning{Explanation: fmt.Sprintf("%s says %s.", cmp.Or(condition, "The object"), cmp.Or(reason, "nothing"))}
}

// meanings returns the table, which is made once: a page asks it thousands of times. A key is a reason, or a condition
// and a reason where the condition makes a difference.
var meanings = sync.OnceValue(func() map[string]Meaning {
	all := launchMeanings()
	for _, more := range []map[string]Meaning{nodeMeanings(), updateMeanings(), deletionMeanings(), fleetMeanings(),
		healthMeanings(), budgetMeanings(), providerMeanings(), migrationMeanings()} {
		maps.Copy(all, more)
	}
	return all
})
