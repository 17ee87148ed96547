package freshness

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AtLeastAsNew reports whether a resource version is equal to or later than another resource version. AtLeastAsNew
// returns false if one of the versions is invalid or empty. The versions may belong to different kinds, because all
// kinds share the version counter of etcd.
func AtLeastAsNew(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order >= 0
}

// SameObjects reports whether a cache contains the same objects as a live list, each in the same version or in a
// later version.
func SameObjects[T client.Object](cached, live []T) bool {
	if len(cached) != len(live) {
		return false
	}
	versions := make(map[types.UID]string, len(cached))
	for _, o := range cached {
		versions[o.GetUID()] = o.GetResourceVersion()
	}
	for _, o := range live {
		version, ok := versions[o.GetUID()]
		if !ok || !AtLeastAsNew(version, o.GetResourceVersion()) {
			return false
		}
	}
	return true
}

// Ambiguous reports whether a write may have succeeded although it returned an error. A lost response and a status of
// 500 or above are ambiguous. A status below 500 means that the API server rejected the request.
func Ambiguous(err error) bool {
	if err == nil {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == 0
}
