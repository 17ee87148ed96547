package installer

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
)

// detection is what the provider IDs of the Nodes show.
type detection struct {
	total     int
	platforms map[string]int // the number of Nodes by the scheme of their provider IDs
}

// scheme is the part of a provider ID before "://" where it can be the type of a Provider.
var scheme = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]{0,42}[a-z0-9])?)://`)

// detect counts the Nodes of each platform. A Node whose provider ID is not set, or has no scheme, is of none.
func detect(nodes []corev1.Node) detection {
	d := detection{total: len(nodes), platforms: map[string]int{}}
	for i := range nodes {
		if match := scheme.FindStringSubmatch(nodes[i].Spec.ProviderID); match != nil {
			d.platforms[match[1]]++
		}
	}
	return d
}

// sorted returns the platforms, that with most Nodes first.
func (d detection) sorted() []string {
	return slices.SortedFunc(maps.Keys(d.platforms), func(a, b string) int {
		return cmp.Or(cmp.Compare(d.platforms[b], d.platforms[a]), cmp.Compare(a, b))
	})
}

// trouble returns why there is no one platform, nil if there is.
func (d detection) trouble() *trouble {
	platforms := d.sorted()
	switch len(platforms) {
	case 0:
		message := "There are no Nodes yet, so the platform cannot be detected."
		if d.total > 0 {
			message = fmt.Sprintf("None of %s has a provider ID, so the platform cannot be detected.", nodeCount(d.total))
		}
		return &trouble{reason: v1beta1.ReasonWaitingForNodes, waits: true, after: nodesDelay,
			message: message + " It is checked again every 30 seconds; or make a Provider that names its type."}
	case 1:
		return nil
	}
	parts := make([]string, len(platforms))
	for i, platform := range platforms {
		parts[i] = fmt.Sprintf("%d %s", d.platforms[platform], platform)
	}
	return &trouble{reason: v1beta1.ReasonPlatformMixed, after: nodesDelay, message: wording.Brief(fmt.Sprintf(
		"Of %s these have provider IDs of several platforms: %s. Make a Provider that names its type.",
		nodeCount(d.total), strings.Join(parts, ", ")))}
}

// platform returns the one platform.
func (d detection) platform() *v1beta1.DetectedPlatform {
	name := d.sorted()[0]
	return &v1beta1.DetectedPlatform{Type: name, Nodes: int32(d.platforms[name]), TotalNodes: int32(d.total)}
}

func detectedMessage(d *v1beta1.DetectedPlatform) string {
	return fmt.Sprintf("Detected %s from %d of %s", d.Type, d.Nodes, nodeCount(int(d.TotalNodes)))
}

func nodeCount(n int) string {
	if n == 1 {
		return "1 Node"
	}
	return fmt.Sprintf("%d Nodes", n)
}
