// Package naming derives the names of instances in a cloud. The names are readable, unique among all clusters, and the
// same for every retry of one attempt. A driver for a cloud without idempotency tokens can therefore find an instance
// of an earlier call by name.
package naming

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// maxPart is the maximum number of characters of the Machine's name in the name of its instance. A dash, eight
// characters of a hash, another dash and the attempt follow. The whole name must fit into the 63 characters of a label
// value.
const maxPart = 48

// Base returns the common prefix of all names for a Machine. The result consists of the Machine's name and a 40-bit
// hash of the cluster ID and the UID. The hash is needed because Machines of other clusters and namespaces may have
// the same name. Base has at most 57 lower-case letters, digits and dashes.
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

// Instance returns the name of the instance of one attempt, which is also the name of its Node. The name has at most
// 63 characters. The token has the form "<uid>-<attempt>". The name for the first attempt equals Base.
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

// IsOf returns true if the name is equal to base, or begins with base and a dash.
func IsOf(name, base string) bool { return strings.HasPrefix(name+"-", base+"-") }

// IsFirst reports whether a token belongs to the Machine's first attempt, before which nothing was created.
func IsFirst(m provider.Machine, token string) bool { return token == string(m.UID)+"-1" }

// Hash returns a 40-bit hash of the parts, encoded with lower-case letters and digits.
func Hash(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)[:5]))
}
