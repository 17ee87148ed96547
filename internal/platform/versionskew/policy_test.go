package versionskew

import (
	"strings"
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

func TestViolation(t *testing.T) {
	for name, c := range map[string]struct {
		kubelet, server string
		violation       string // a part of the violation; empty if there is none
		advice          string
	}{
		"the same version": {"v1.36.3", "v1.36.3", "", ""},
		"a newer patch":    {"v1.36.9", "v1.36.3", "", ""},
		"one minor newer": {"v1.37.0", "v1.36.3",
			"v1.37.0 is newer than v1.36.3", "version v1.36 or older"},
		"much newer": {"v1.99.0", "v1.36.3",
			"v1.99.0 is newer than v1.36.3", "version v1.36 or older"},
		"three minors older":                {"v1.33.0", "v1.36.3", "", ""},
		"four minors older":                 {"v1.32.9", "v1.36.3", "v1.32.9 is more than 3 minor versions older than v1.36.3", "v1.33 or newer"},
		"a newer major":                     {"v2.0.0", "v1.36.3", "v2.0.0 is newer", "v1.36 or older"},
		"an older major":                    {"v1.36.3", "v2.0.1", "v1.36.3 is more than 3 minor versions older", "v2.0 or newer"},
		"a server of a distribution":        {"v1.37.0", "v1.36.3+k3s1", "is newer than v1.36.3+k3s1", "v1.36 or older"},
		"a server of a managed service":     {"v1.36.1", "v1.36.3-eks-4096722", "", ""},
		"a release candidate of the server": {"v1.37.0", "v1.37.0-rc.1", "", ""},
		"no kubelet version":                {"", "v1.36.3", "", ""},
		"an invalid kubelet version":        {"latest", "v1.36.3", "", ""},
		"an unknown server":                 {"v1.99.0", "", "", ""},
		"an invalid server version":         {"v1.99.0", "unknown", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := Violation(c.kubelet, c.server)
			if (got == "") != (c.violation == "") || !strings.Contains(got, c.violation) || !strings.Contains(got, c.advice) {
				t.Errorf("Violation(%q, %q) = %q, want %q with the advice %q", c.kubelet, c.server, got, c.violation, c.advice)
			}
			if got != "" && !strings.Contains(got, v1beta1.AnnotationAllowVersionSkew) {
				t.Errorf("%q does not name the annotation that overrides it", got)
			}
		})
	}
}
