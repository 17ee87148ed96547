package versionskew

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	"machinist.dev/machinist/api/v1beta1"
)

// mostOlder is the maximum number of minor versions by which a kubelet may be older than the API server.
const mostOlder = 3

// Violation explains why a kubelet must not register with an API server of another version, and what to do. It returns
// "" if the kubelet may register or a version is unknown. Patch versions do not matter.
func Violation(kubelet, server string) string {
	k, err := version.ParseSemantic(kubelet)
	if err != nil {
		return ""
	}
	s, err := version.ParseSemantic(server)
	if err != nil {
		return ""
	}
	const override = ", or set the annotation " + v1beta1.AnnotationAllowVersionSkew
	switch {
	case k.Major() > s.Major(), k.Major() == s.Major() && k.Minor() > s.Minor():
		return fmt.Sprintf("version %s is newer than %s, the version of the API server of the target cluster. Kubernetes "+
			"does not support this: upgrade the control plane first, set version v%d.%d or older", kubelet, server,
			s.Major(), s.Minor()) + override
	case k.Major() < s.Major(), k.Minor()+mostOlder < s.Minor():
		oldest := s.Minor() - min(s.Minor(), mostOlder)
		return fmt.Sprintf("version %s is more than %d minor versions older than %s, the version of the API server of "+
			"the target cluster. Kubernetes does not support this: set version v%d.%d or newer", kubelet, mostOlder,
			server, s.Major(), oldest) + override
	}
	return ""
}
