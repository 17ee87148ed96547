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

// owner is the Machine for which a call is made.
type owner struct {
	cluster string
	machine provider.Machine
}

func ownerOf(cluster string, m provider.Machine) (owner, error) {
	if cluster == "" || m.UID == "" {
		return owner{}, provider.Errorf(provider.InvalidArgument, "cluster id %q or UID %q of machine %s/%s is empty",
			cluster, m.UID, m.Namespace, m.Name)
	}
	o := owner{cluster: cluster, machine: m}
	// Every file system takes names of that length.
	if longest := len(o.volumePrefix()) + len("x00000000_disk-0123456789abcdef"); longest > maxVolumeName {
		return owner{}, provider.Errorf(provider.InvalidArgument,
			"cluster id %.64q and UID %.64q of machine %s/%s are too long for the names of volumes", cluster, m.UID, m.Namespace,
			m.Name)
	}
	return o, nil
}

// metadataURI is the namespace of what is Machinist's in the metadata of a domain.
const metadataURI = "https://machinist.dev/libvirt/v1"

// metadata is the element of a domain's metadata that is Machinist's. It is all that is known of an instance when its
// class is gone.
type metadata struct {
	XMLName xml.Name `xml:"machine"`
	// Namespace is metadataURI in the description of a domain. libvirt takes it off when the element is read, and adds it
	// when it is written by itself.
	Namespace string `xml:"xmlns,attr,omitempty"`
	// Adoptable, with the value "true", lets a domain be adopted.
	Adoptable string `xml:"adoptable,attr,omitempty"`

	Cluster string `xml:"cluster,attr,omitempty"`
	UID     string `xml:"uid,attr,omitempty"`
	// Machine is namespace/name, for people.
	Machine string `xml:"machine,attr,omitempty"`
	// Attempt tells the domains and the volumes of one Machine apart.
	Attempt string `xml:"attempt,attr,omitempty"`
	// Spec is a hash of all of the providerSpec that cannot change in place.
	Spec string `xml:"spec,attr,omitempty"`
	// VCPUs and MemoryMiB are the sizes that the domain has, or has after its next start.
	VCPUs     int32 `xml:"vcpus,attr,omitempty"`
	MemoryMiB int64 `xml:"memoryMiB,attr,omitempty"`
	// Stopping is when the domain began to stop for other sizes, in RFC 3339, then startAgain; empty otherwise.
	Stopping string `xml:"stopping,attr,omitempty"`
	// Version is the kubelet version that the user data was rendered for.
	Version string `xml:"version,attr,omitempty"`
	// Created is when the domain was made, in RFC 3339.
	Created string `xml:"created,attr,omitempty"`
	// Deleting, with the value "true", is set before anything of the domain is removed.
	Deleting  string `xml:"deleting,attr,omitempty"`
	Zone      string `xml:"zone,attr,omitempty"`
	Type      string `xml:"type,attr,omitempty"`
	Addresses string `xml:"addresses,attr,omitempty"`
	// Volumes are those that were made for the domain.
	Volumes []volumeReference `xml:"volume"`
}

type volumeReference struct {
	Pool string `xml:"pool,attr"`
	Name string `xml:"name,attr"`
}

// text is the element in XML.
func (m metadata) text() string {
	raw, err := xml.Marshal(m)
	if err != nil {
		return "" // Strings are always XML.
	}
	return string(raw)
}

// parseMetadata reads an element; one that is none counts as empty.
func parseMetadata(text string) metadata {
	var m metadata
	if err := xml.Unmarshal([]byte(text), &m); err != nil {
		return metadata{}
	}
	m.Namespace, m.XMLName.Space = "", ""
	return m
}

// owns reports whether metadata are those of the cluster and of the machine.
func (o owner) owns(m metadata) bool { return m.Cluster == o.cluster && m.UID == string(o.machine.UID) }

// identify puts the owner into metadata.
func (o owner) identify(m *metadata) {
	m.Cluster, m.UID = o.cluster, string(o.machine.UID)
	m.Machine = o.machine.Namespace + "/" + o.machine.Name
}

// attemptOf is what of a token tells the attempts of a Machine apart: its number, or a hash of a token that has none.
func (o owner) attemptOf(token string) string {
	attempt, ok := strings.CutPrefix(token, string(o.machine.UID)+"-")
	if n, err := strconv.ParseUint(attempt, 10, 32); ok && err == nil && strconv.FormatUint(n, 10) == attempt {
		return attempt
	}
	return "x" + naming.Hash(token)
}

// instances is the namespace of the UUIDs of domains.
var instances = uuid.MustParse("6ba9f4a2-3f0c-5c0e-9d57-1a6d1c1f4f6b")

// domainUUID is that of an attempt.
func (o owner) domainUUID(attempt string) uuid.UUID {
	return uuid.NewSHA1(instances, []byte(o.cluster+"\x00"+string(o.machine.UID)+"\x00"+attempt))
}

// The names of volumes are all that says whose they are: libvirt keeps no metadata with them.
//
//	machinist_CLUSTER_UID_ATTEMPT_PART
const (
	maxVolumeName = 255

	partRoot    = "root"
	partSeed    = "seed"
	partConsole = "console"
	partDisk    = "disk-"
)

// escape gives a part of a volume's name, in which "_" separates parts and file systems dislike others.
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

var escaped = regexp.MustCompile(`=[0-9A-F]{2}`)

// unescape reads what escape wrote.
func unescape(text string) string {
	return escaped.ReplaceAllStringFunc(text, func(code string) string {
		c, _ := strconv.ParseUint(code[1:], 16, 8)
		return string([]byte{byte(c)})
	})
}

// volumePrefix is what the names of all of the owner's volumes begin with.
func (o owner) volumePrefix() string {
	return machine.VolumeMark + escape(o.cluster) + "_" + escape(string(o.machine.UID)) + "_"
}

func (o owner) volumeName(attempt, part string) string {
	return o.volumePrefix() + attempt + "_" + part
}

// volumeOwner reads a volume's name. It reports false for one that is not Machinist's.
func volumeOwner(name string) (cluster, uid, attempt string, ok bool) {
	rest, marked := strings.CutPrefix(name, machine.VolumeMark)
	fields := strings.Split(rest, "_")
	if !marked || len(fields) != 4 || fields[0] == "" || fields[1] == "" || fields[2] == "" {
		return "", "", "", false
	}
	return unescape(fields[0]), unescape(fields[1]), fields[2], true
}

// hardwareAddress is that of an interface. The first byte, as libvirt's own, is of an address that nobody assigned.
func hardwareAddress(domain uuid.UUID, i int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", domain, i))
	return fmt.Sprintf("52:%02x:%02x:%02x:%02x:%02x", sum[0], sum[1], sum[2], sum[3], sum[4])
}

// providerIDPrefix comes before the UUID of a domain, which the guest finds in its firmware's tables.
const providerIDPrefix = "libvirt:///"

func providerID(id libvirt.UUID) string { return providerIDPrefix + uuid.UUID(id).String() }

var uuidFormat = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// locate reads a provider ID.
func locate(id string) (libvirt.UUID, error) {
	text, ours := strings.CutPrefix(id, providerIDPrefix)
	if !ours || !uuidFormat.MatchString(text) {
		return libvirt.UUID{}, provider.Errorf(provider.InvalidArgument, "provider ID %.256q is not libvirt:///UUID", id)
	}
	parsed, err := uuid.Parse(text)
	if err != nil {
		return libvirt.UUID{}, provider.Errorf(provider.InvalidArgument, "provider ID %.256q is not libvirt:///UUID", id)
	}
	return libvirt.UUID(parsed), nil
}

// specHash is over all that cannot change in place.
func specHash(s machine.Spec) string {
	s.Zone, s.VCPUs, s.MemoryMiB, s.KubeletAgent = "", 0, 0, false
	raw, err := json.Marshal(s)
	if err != nil {
		return "" // Nothing in it cannot be JSON.
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:12])
}

// typeOf is the type of instance, for the label of the nodes.
func typeOf(s machine.Spec) string { return fmt.Sprintf("%d-vcpus-%d-mib", s.VCPUs, s.MemoryMiB) }

func now() string { return time.Now().UTC().Format(time.RFC3339) }
