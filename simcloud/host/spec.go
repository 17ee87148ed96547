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
	// If KubeletVersion is not empty, it takes precedence over the versions in the user data and the image.
	KubeletVersion string
	Address        netip.Addr
	// PodNet is the network of the machine's pods.
	PodNet   netip.Prefix
	UserData []byte
	// Boots is how often the machine was switched on.
	Boots    int
	Settings simcloud.HostSettings
	// Disk is the content that the machine saved before it was switched off.
	Disk Disk
}

// Disk is what a machine keeps when it is switched off: the identity and the version of its kubelet.
type Disk struct {
	// KeyPEM is the private key of the certificate.
	KeyPEM []byte `json:"keyPEM,omitempty"`
	// CertificatePEM is the node certificate. It is empty until the certificate is issued.
	CertificatePEM []byte `json:"certificatePEM,omitempty"`
	// KubeletVersion is the version that the machine's agent installed last.
	KubeletVersion string `json:"kubeletVersion,omitempty"`
}

// Reporter receives the reports of a machine. It must not call back into the host.
type Reporter interface {
	// Save saves a disk.
	Save(Disk) error
	// Report replaces the machine's status.
	Report(simcloud.HostStatus)
	// Print adds a line to the serial console.
	Print(line string)
}
