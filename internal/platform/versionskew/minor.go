package versionskew

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// Minor is a minor version of Kubernetes, such as v1.36.
type Minor struct{ Major, Minor uint }

// MinorOf returns the minor version of a complete version, such as v1.36.3. It returns false if the version cannot be
// parsed.
func MinorOf(complete string) (Minor, bool) {
	v, err := version.ParseSemantic(complete)
	if err != nil {
		return Minor{}, false
	}
	return Minor{Major: v.Major(), Minor: v.Minor()}, true
}

// IsNewer reports whether the minor version of the kubelet is later than that of the API server.
func IsNewer(kubelet, server string) bool {
	k, known := MinorOf(kubelet)
	s, serverKnown := MinorOf(server)
	return known && serverKnown && k.Compare(s) > 0
}

func (m Minor) String() string { return fmt.Sprintf("v%d.%d", m.Major, m.Minor) }

// Compare returns a negative number if m is earlier than other, and a positive number if m is later.
func (m Minor) Compare(other Minor) int {
	return cmp.Or(cmp.Compare(m.Major, other.Major), cmp.Compare(m.Minor, other.Minor))
}

// Next returns the following minor version.
func (m Minor) Next() Minor { return Minor{Major: m.Major, Minor: m.Minor + 1} }

// IsAdjacent reports whether the minor versions are equal or differ by one.
func (m Minor) IsAdjacent(other Minor) bool {
	return m == other || m.Next() == other || other.Next() == m
}
