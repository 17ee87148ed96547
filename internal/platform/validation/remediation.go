package validation

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// RemediationKindsFlag is the flag that lists the kinds of remediations that the manager may create.
const RemediationKindsFlag = "remediation-kinds"

// ParseRemediationKinds parses the values of the flag --remediation-kinds, such as
// SelfNodeRemediation.self-node-remediation.medik8s.io.
func ParseRemediationKinds(values []string) ([]schema.GroupKind, error) {
	var kinds []schema.GroupKind
	var errs []error
	for _, value := range values {
		kind := schema.ParseGroupKind(strings.TrimSpace(value))
		switch {
		case kind.Kind == "" || kind.Group == "" || kind.Kind[0] < 'A' || kind.Kind[0] > 'Z':
			errs = append(errs, fmt.Errorf("--%s contains %q; an entry is a kind, a dot and an API group, such as "+
				"SelfNodeRemediation.self-node-remediation.medik8s.io", RemediationKindsFlag, value))
		case strings.HasSuffix(kind.Kind, "Template"):
			errs = append(errs, fmt.Errorf("--%s contains %q; name the kind of the remediation, %s", RemediationKindsFlag,
				value,
				schema.GroupKind{Group: kind.Group, Kind: strings.TrimSuffix(kind.Kind, "Template")}))
		case !slices.Contains(kinds, kind):
			kinds = append(kinds, kind)
		}
	}
	return kinds, errors.Join(errs...)
}

// RemediationNotPermitted explains that the manager may not create remediations of a kind.
func RemediationNotPermitted(kind schema.GroupKind) string {
	return fmt.Sprintf("the manager does not permit remediations of kind %s: add %[1]s to its flag --%s (remediationKinds in the chart machinist)",
		kind, RemediationKindsFlag)
}
