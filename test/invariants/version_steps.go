package invariants

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"
)

// SkippedMinor returns the first minor version, such as 1.35, that no machine of a deployment with version steps has
// had, although machines have had an earlier and a later one. The result is empty if there is none. The versions are
// those of all machines that have existed. Empty versions do not count.
func SkippedMinor(versions []string) string {
	var minors []uint
	major := uint(0)
	for _, text := range versions {
		if v, err := version.ParseGeneric(text); err == nil {
			major = v.Major()
			minors = append(minors, v.Minor())
		}
	}
	slices.Sort(minors)
	for i := 1; i < len(minors); i++ {
		if minors[i] > minors[i-1]+1 {
			return fmt.Sprintf("%d.%d", major, minors[i-1]+1)
		}
	}
	return ""
}
