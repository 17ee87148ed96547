// Package naming gives instances their names at a cloud: readable, unique among all clusters, and the same for every
// retry of one attempt, so that a cloud without idempotency tokens finds by name what an earlier call has made.
package naming

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// maxPart bounds what of a Machine's name is in its instance's, so that all of it has at most the 63 characters of a
// node's label: a dash, eight characters of hash, another dash and an attempt come after it.
const maxPart = 48

// Base returns what the names of all that is made for a Machine begin with: its own name, for people, and 40 bits that
// stand for the cluster and the UID, because Machines of other clusters and namespaces may be called the same. It has
// lower-case letters, digits and dashes, and at most 57 characters.
func Base(clusterID string, m provider.Machine) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, m.Name)
	name = strings.Trim(name[:min(len(name), maxPart)], "-")
	if name == "" {
		name = "machine"
	}
	return name + "-" + Hash(clusterID, string(m.UID))
}

// Instance returns the name of the instance of one attempt, and of its node; at most 63 characters. The token is
// "<uid>-<attempt>". The first attempt has the name that Base returns.
func Instance(clusterID string, m provider.Machine, token string) string {
	base := Base(clusterID, m)
	attempt, isAttempt := strings.CutPrefix(token, string(m.UID)+"-")
	n, err := strconv.Atoi(attempt)
	switch {
	case isAttempt && err == nil && n == 1:
		return base
	case isAttempt && err == nil && n > 1 && n < 10000:
		return base + "-" + strconv.Itoa(n)
	}
	return base + "-x" + Hash(token)[:4]
}

// IsOf reports whether a name is the base, or begins with it and a dash.
func IsOf(name, base string) bool { return strings.HasPrefix(name+"-", base+"-") }

// IsFirst reports whether a token is that of the Machine's first attempt: nothing was made before it.
func IsFirst(m provider.Machine, token string) bool { return token == string(m.UID)+"-1" }

// Hash returns 40 bits of a hash of the parts, in the alphabet of names.
func Hash(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)[:5]))
}
