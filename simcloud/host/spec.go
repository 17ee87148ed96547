package host

import (
	"net/netip"

	"machinist.dev/machinist/simcloud"
)

// Spec is a machine as its cloud describes it.
type Spec struct {
	// ID identifies the machine among all those of a process.
	ID         string
	ProviderID string
	Hostname   string
	Region     string
	Zone       string
	Type       simcloud.InstanceType
	Image      simcloud.Image
	// KubeletVersion wins over user data and image where it is not empty.
	KubeletVersion string
	Address        netip.Addr
	// PodNet is where the machine's pods have their addresses.
	PodNet   netip.Prefix
	UserData []byte
	// Boots counts how often the machine was switched on.
	Boots    int
	Settings simcloud.HostSettings
	// Disk is what the machine saved before.
	Disk Disk
}

// Disk is what a machine remembers when it is switched off: the kubelet's
// identity in the cluster, and which one it is.
type Disk struct {
	// KeyPEM is the private key of the certificate.
	KeyPEM []byte `json:"keyPEM,omitempty"`
	// CertificatePEM is the node certificate, once it was issued.
	CertificatePEM []byte `json:"certificatePEM,omitempty"`
	// KubeletVersion is what the machine's agent installed last.
	KubeletVersion string `json:"kubeletVersion,omitempty"`
}

// Reporter is where a machine's life becomes visible. It must not call back
// into the host.
type Reporter interface {
	// Save makes a disk durable.
	Save(Disk) error
	// Report replaces the machine's status.
	Report(simcloud.HostStatus)
	// Print adds a line to the serial console.
	Print(line string)
}
