package host

import (
	"net/netip"

	"machinist.dev/machinist/simcloud"
)

// Spec describes a machine.
type Spec struct {
	// ID is unique among all machines of a process.
	ID         string
	ProviderID string
	Hostname   string
	Region     string
	Zone       string
	Type       simcloud.InstanceType
	Image      simcloud.Image
	// KubeletVersion takes precedence over the user data and the image, unless it is empty.
	KubeletVersion string
	Address        netip.Addr
	// PodNet is the network of the machine's pods.
	PodNet   netip.Prefix
	UserData []byte
	// Boots is the number of times that the machine was switched on.
	Boots    int
	Settings simcloud.HostSettings
	// Disk is the state that the machine saved the last time it was running.
	Disk Disk
}

// Disk is the state that survives switching off a machine: the identity and the version of its kubelet.
type Disk struct {
	// KeyPEM is the private key of the certificate.
	KeyPEM []byte `json:"keyPEM,omitempty"`
	// CertificatePEM is the node certificate, or empty until it is issued.
	CertificatePEM []byte `json:"certificatePEM,omitempty"`
	// KubeletVersion is the last version that the machine's agent installed.
	KubeletVersion string `json:"kubeletVersion,omitempty"`
}

// Reporter receives the reports of a machine. The methods of a Reporter must not call the Fleet.
type Reporter interface {
	// Save saves a disk.
	Save(Disk) error
	// Report receives the new status of the machine after each change.
	Report(simcloud.HostStatus)
	// Print adds a line to the serial console.
	Print(line string)
}
