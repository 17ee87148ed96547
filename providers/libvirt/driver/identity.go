package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/naming"
	"machinist.dev/machinist/providers/libvirt/machine"
)

// owner identifies the Machine of a call.
type owner struct {
	cluster string
	machine provider.Machine
}

func ownerOf(cluster string, m provider.Machine) (owner, error) {
	if cluster == "" || m.UID == "" {
		return owner{}, provider.Errorf(provider.InvalidArgument, "cluster ID %q or UID %q of machine %s/%s is empty",
			cluster, m.UID, m.Namespace, m.Name)
	}
	o := owner{cluster: cluster, machine: m}
	// All file systems support file names of this length.
	if longest := len(o.volumePrefix()) + len("x00000000_disk-0123456789abcdef"); longest > maxVolumeName {
		return owner{}, provider.Errorf(provider.InvalidArgument,
			"cluster ID %.64q and UID %.64q of machine %s/%s are too long for volume names", cluster, m.UID, m.Namespace,
			m.Name)
	}
	return o, nil
}

// metadataURI is the XML namespace of Machinist's element in the metadata of a domain.
const metadataURI = "https://machinist.dev/libvirt/v1"

// metadata is Machinist's element in the metadata of a domain. Without a class, it is the only information about an
// instance.
type metadata struct {
	XMLName xml.Name `xml:"machine"`
	// Namespace is set when the element is part of a domain definition. libvirt adds and omits the namespace itself
	// when a client writes or reads only the element.
	Namespace string `xml:"xmlns,attr,omitempty"`
	// Adoptable is "true" if Machinist may adopt the domain.
	Adoptable string `xml:"adoptable,attr,omitempty"`

	Cluster string `xml:"cluster,attr,omitempty"`
	UID     string `xml:"uid,attr,omitempty"`
	// Machine is namespace/name, for information only.
	Machine string `xml:"machine,attr,omitempty"`
	// Attempt distinguishes the domains and volumes of different attempts for one Machine.
	Attempt string `xml:"attempt,attr,omitempty"`
	// Spec is a hash of the fields that cannot change in place.
	Spec string `xml:"spec,attr,omitempty"`
	// VCPUs and MemoryMiB are the sizes of the domain. A change takes effect at the next start.
	VCPUs     int32 `xml:"vcpus,attr,omitempty"`
	MemoryMiB int64 `xml:"memoryMiB,attr,omitempty"`
	// Stopping is the time when the driver began to stop the domain for a resize, in RFC 3339. When the domain has
	// stopped, the value is startPending. Without a resize, the value is empty.
	Stopping string `xml:"stopping,attr,omitempty"`
	// Version is the kubelet version of the user data.
	Version string `xml:"version,attr,omitempty"`
	// Created is the creation time of the domain in RFC 3339.
	Created string `xml:"created,attr,omitempty"`
	// Deleting is "true" once the deletion of the domain has started. The field is set before any part of the domain
	// is deleted.
	Deleting  string `xml:"deleting,attr,omitempty"`
	Zone      string `xml:"zone,attr,omitempty"`
	Type      string `xml:"type,attr,omitempty"`
	Addresses string `xml:"addresses,attr,omitempty"`
	// Volumes were created for the domain.
	Volumes []volumeReference `xml:"volume"`
}

type volumeReference struct {
	Pool string `xml:"pool,attr"`
	Name string `xml:"name,attr"`
}

func (m metadata) encode() string {
	raw, err := xml.Marshal(m)
	if err != nil {
		return "" // Marshalling strings and numbers cannot fail.
	}
	return string(raw)
}

// parseMetadata reads an element. A malformed element counts as empty.
func parseMetadata(text string) metadata {
	var m metadata
	if err := xml.Unmarshal([]byte(text), &m); err != nil {
		return metadata{}
	}
	m.Namespace, m.XMLName.Space = "", ""
	return m
}

func (o owner) owns(m metadata) bool { return m.Cluster == o.cluster && m.UID == string(o.machine.UID) }

func (o owner) tag(m *metadata) {
	m.Cluster, m.UID = o.cluster, string(o.machine.UID)
	m.Machine = o.machine.Namespace + "/" + o.machine.Name
}

// attemptOf returns the number in a token, or a hash of a token without a number. attemptOf distinguishes the
// attempts of a Machine.
func (o owner) attemptOf(token string) string {
	attempt, ok := strings.CutPrefix(token, string(o.machine.UID)+"-")
	if n, err := strconv.ParseUint(attempt, 10, 32); ok && err == nil && strconv.FormatUint(n, 10) == attempt {
		return attempt
	}
	return "x" + naming.Hash(token)
}

var uuidNamespace = uuid.MustParse("6ba9f4a2-3f0c-5c0e-9d57-1a6d1c1f4f6b")

func (o owner) domainUUID(attempt string) uuid.UUID {
	return uuid.NewSHA1(uuidNamespace, []byte(o.cluster+"\x00"+string(o.machine.UID)+"\x00"+attempt))
}

// libvirt keeps no metadata for volumes, so the name identifies the owner:
//
//	machinist_CLUSTER_UID_ATTEMPT_PART
const (
	maxVolumeName = 255

	partRoot    = "root"
	partSeed    = "seed"
	partConsole = "console"
	partDisk    = "disk-"
)

// escape encodes a part of a volume name. The function escapes the separator "_", and characters that some file
// systems do not support.
func escape(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '.':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

var escapeSequence = regexp.MustCompile(`=[0-9A-F]{2}`)

func unescape(text string) string {
	return escapeSequence.ReplaceAllStringFunc(text, func(code string) string {
		c, _ := strconv.ParseUint(code[1:], 16, 8)
		return string([]byte{byte(c)})
	})
}

// volumePrefix returns the common prefix of the owner's volume names.
func (o owner) volumePrefix() string {
	return machine.VolumePrefix + escape(o.cluster) + "_" + escape(string(o.machine.UID)) + "_"
}

func (o owner) volumeName(attempt, part string) string {
	return o.volumePrefix() + attempt + "_" + part
}

// volumeOwner parses a volume name. If the volume is not Machinist's, ok is false.
func volumeOwner(name string) (cluster, uid, attempt string, ok bool) {
	rest, marked := strings.CutPrefix(name, machine.VolumePrefix)
	fields := strings.Split(rest, "_")
	if !marked || len(fields) != 4 || fields[0] == "" || fields[1] == "" || fields[2] == "" {
		return "", "", "", false
	}
	return unescape(fields[0]), unescape(fields[1]), fields[2], true
}

// macAddress returns the hardware address of an interface. Like libvirt's own addresses, it begins with 52, a prefix of
// locally administered addresses.
func macAddress(domain uuid.UUID, i int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", domain, i))
	return fmt.Sprintf("52:%02x:%02x:%02x:%02x:%02x", sum[0], sum[1], sum[2], sum[3], sum[4])
}

// providerIDPrefix precedes the domain's UUID in a provider ID. The guest finds the UUID in the tables of its firmware.
const providerIDPrefix = "libvirt:///"

func providerID(id libvirt.UUID) string { return providerIDPrefix + uuid.UUID(id).String() }

var uuidFormat = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func parseProviderID(id string) (libvirt.UUID, error) {
	text, ours := strings.CutPrefix(id, providerIDPrefix)
	if !ours || !uuidFormat.MatchString(text) {
		return libvirt.UUID{}, provider.Errorf(provider.InvalidArgument,
			"provider ID %.256q does not have the form libvirt:///UUID", id)
	}
	parsed, err := uuid.Parse(text)
	if err != nil {
		return libvirt.UUID{}, provider.Errorf(provider.InvalidArgument,
			"provider ID %.256q does not have the form libvirt:///UUID", id)
	}
	return libvirt.UUID(parsed), nil
}

// specHash hashes the fields that cannot change in place.
func specHash(s machine.Spec) string {
	s.Zone, s.VCPUs, s.MemoryMiB, s.KubeletAgent = "", 0, 0, false
	raw, err := json.Marshal(s)
	if err != nil {
		return "" // Marshalling a Spec cannot fail.
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:12])
}

// instanceType returns the instance type, which becomes a label of the Node.
func instanceType(s machine.Spec) string { return fmt.Sprintf("%d-vcpus-%d-mib", s.VCPUs, s.MemoryMiB) }

func timestamp() string { return time.Now().UTC().Format(time.RFC3339) }
