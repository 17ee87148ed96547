// Package examples contains example manifests that users can copy and change. The demo and the tests also use these
// manifests, so errors in the manifests are noticed.
package examples

import (
	"embed"

	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/install/manifest"
)

// Names in the example fleet.
const (
	CredentialsSecret = "sim-credentials"
	// UserDataSecret is the name of the Secret that contains the user data of the example fleet for the simulated
	// cloud.
	UserDataSecret = "worker-user-data"
	SmallClass     = "small"
	LargeClass     = "large"
	Deployment     = "workers"
)

//go:embed sim/*.yaml azure/*.yaml libvirt/*.yaml openstack/*.yaml vsphere/*.yaml
var files embed.FS

// Set identifies the example fleet of one provider by the provider's name. The sets differ in their classes,
// credentials and user data.
type Set string

// All sets.
const (
	Sim       Set = "sim"
	Azure     Set = "azure"
	Libvirt   Set = "libvirt"
	OpenStack Set = "openstack"
	VSphere   Set = "vsphere"
)

// Credentials returns the name of the Secret that contains the credentials of the set.
func (s Set) Credentials() string { return string(s) + "-credentials" }

// UserData returns the name of the Secret with the user data of the set. Each set has its own names for Secrets, so
// that a user can apply all sets in one namespace.
func (s Set) UserData() string {
	if s == Sim {
		return UserDataSecret
	}
	return string(s) + "-user-data"
}

// Objects returns the objects of the set without a namespace, in the order of their creation.
func (s Set) Objects() ([]client.Object, error) {
	return manifest.Decode(files, string(s)+"/*.yaml", clientgoscheme.AddToScheme, v1beta1.AddToScheme)
}

// Fleet returns the objects of the example fleet for the simulated cloud, without a namespace, in the order of their
// creation.
func Fleet() ([]client.Object, error) { return Sim.Objects() }
