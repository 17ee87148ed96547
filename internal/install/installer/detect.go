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

// detection holds the platforms of the Nodes, which follow from their provider IDs.
type detection struct {
	total     int
	platforms map[string]int // number of Nodes by the scheme of their provider IDs
}

// scheme matches the part of a provider ID before "://" if it is a valid type of a Provider.
var scheme = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]{0,42}[a-z0-9])?)://`)

// detect counts the Nodes of each platform. A Node without a provider ID or scheme has no platform.
func detect(nodes []corev1.Node) detection {
	d := detection{total: len(nodes), platforms: map[string]int{}}
	for i := range nodes {
		if match := scheme.FindStringSubmatch(nodes[i].Spec.ProviderID); match != nil {
			d.platforms[match[1]]++
		}
	}
	return d
}

func (d detection) sorted() []string {
	return slices.SortedFunc(maps.Keys(d.platforms), func(a, b string) int {
		return cmp.Or(cmp.Compare(d.platforms[b], d.platforms[a]), cmp.Compare(a, b))
	})
}

func (d detection) problem() *problem {
	platforms := d.sorted()
	switch len(platforms) {
	case 0:
		message := "There are no Nodes yet, so the platform cannot be detected."
		if d.total > 0 {
			message = fmt.Sprintf("None of %s has a provider ID, so the platform cannot be detected.", nodeCount(d.total))
		}
		return &problem{reason: v1beta1.ReasonWaitingForNodes, isWait: true, requeueAfter: nodesDelay,
			message: message + " The Nodes are checked again every 30 seconds. Alternatively, create a Provider with its type in spec.type."}
	case 1:
		return nil
	}
	parts := make([]string, len(platforms))
	for i, platform := range platforms {
		parts[i] = fmt.Sprintf("%d %s", d.platforms[platform], platform)
	}
	return &problem{reason: v1beta1.ReasonPlatformMixed, requeueAfter: nodesDelay, message: wording.Shorten(fmt.Sprintf(
		"The provider IDs of the %s belong to several platforms: %s. Create a Provider with its type in spec.type.",
		nodeCount(d.total), strings.Join(parts, ", ")))}
}

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
