package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/naming"
	"machinist.dev/machinist/providers/vsphere/machine"
)

// These keys are in the extra configuration of a virtual machine. A guest can change only keys that begin with
// "guestinfo.".
const (
	keyCluster = "machinist.cluster"
	keyUID     = "machinist.machine-uid"
	keyMachine = "machinist.machine"
	// keyInstance is the instance UUID of the virtual machine that has the tags.
	keyInstance = "machinist.instance-uuid"
	// keySpec is a hash of the fields that cannot change in place.
	keySpec = "machinist.spec"
	// keyVersion is the kubelet version of the user data.
	keyVersion = "machinist.kubelet-version"
	keyRegion  = "machinist.region"
	keyZone    = "machinist.zone"
	// keyDisks are the device keys of the disks that are deleted with the virtual machine, separated by commas.
	keyDisks = "machinist.disks"
	// keyNew is "true" until the virtual machine was switched on or off by the driver, or its node has joined. Then a
	// virtual machine that is off may never have run.
	keyNew = "machinist.new"
	// keyDeleting is "true" as soon as the deletion has begun.
	keyDeleting = "machinist.deleting"
	// keyUpdate is the time since when the driver keeps the virtual machine off for an update.
	keyUpdate = "machinist.update-since"
	// keyAdoptable allows the adoption of a virtual machine if it is "true".
	keyAdoptable = "machinist.adoptable"
)

func extraKeys() []string {
	return []string{keyCluster, keyUID, keyMachine, keyInstance, keySpec, keyVersion, keyRegion, keyZone, keyDisks, keyNew,
		keyDeleting, keyUpdate, keyAdoptable}
}

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
	return owner{cluster: cluster, machine: m}, nil
}

// base returns the common prefix of the names of the owner's virtual machines.
func (o owner) base() string { return naming.Base(o.cluster, o.machine) }

// tags returns the tags of the owner for a virtual machine with an instance UUID.
func (o owner) tags(instanceUUID string) map[string]string {
	return map[string]string{keyCluster: o.cluster, keyUID: string(o.machine.UID),
		keyMachine: o.machine.Namespace + "/" + o.machine.Name, keyInstance: instanceUUID}
}

// uuids returns the two UUIDs of the virtual machine that the driver creates with a name. They are UUIDs of version 8.
func uuids(cluster, name string) (bios, instance string) {
	return derivedUUID("bios", cluster, name), derivedUUID("instance", cluster, name)
}

func derivedUUID(kind, cluster, name string) string {
	h := sha256.New()
	for _, part := range []string{"machinist", kind, cluster, name} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	b := h.Sum(nil)[:16]
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	s := hex.EncodeToString(b)
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// operationPrefix begins the operation ID of a clone. The name of the new virtual machine follows. vCenter may append
// to an operation ID, so the name ends with a dot.
const operationPrefix = "machinist."

func operationID(name string) string { return operationPrefix + name + "." }

// nameInOperation returns the name of the virtual machine that a task with this activation ID creates, or "".
func nameInOperation(activation string) string {
	rest, ok := strings.CutPrefix(activation, operationPrefix)
	name, _, found := strings.Cut(rest, ".")
	if !ok || !found {
		return ""
	}
	return name
}

// providerIDPrefix is the prefix that the cloud controller manager uses.
// https://github.com/kubernetes/cloud-provider-vsphere
const providerIDPrefix = "vsphere://"

var uuidFormat = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func providerID(biosUUID string) string { return providerIDPrefix + strings.ToLower(biosUUID) }

func parseProviderID(id string) (biosUUID string, err error) {
	uuid, ours := strings.CutPrefix(id, providerIDPrefix)
	if !ours || !uuidFormat.MatchString(uuid) {
		return "", provider.Errorf(provider.InvalidArgument, "provider ID %.256q does not have the form vsphere://UUID", id)
	}
	return uuid, nil
}

// scopePrefix begins the scope of an instance. The name of its vCenter follows.
const scopePrefix = "vcenter="

func scopeOf(vcenter string) string { return scopePrefix + vcenter }

// sessionFor returns the session for a virtual machine, which its scope or its class names.
func (d *Driver) sessionFor(class provider.Class, scope string) (*session, error) {
	if vcenter, ok := strings.CutPrefix(scope, scopePrefix); ok {
		return d.session(class.Credentials, vcenter)
	}
	at, err := machine.ParseLocation(class.Spec)
	if err != nil {
		return nil, err
	}
	return d.session(class.Credentials, at.VCenter)
}

// specHash hashes the fields that cannot change in place.
func specHash(s machine.Spec) string {
	s.CPUs, s.MemoryMiB, s.RootDiskGiB, s.Region, s.Zone = 0, 0, 0, "", ""
	disks := make([]machine.Disk, len(s.Disks))
	s.Disks = disks
	raw, err := json.Marshal(s)
	if err != nil {
		return "" // Marshalling a Spec cannot fail.
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:12])
}
