package driver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/naming"
	"machinist.dev/machinist/providers/openstack/machine"
)

// A server has these metadata in addition to the tags of package provider.
const (
	// metaSpec is a hash of the fields that cannot change in place.
	metaSpec = "machinist-spec"
	// metaVersion is the kubelet version of the user data.
	metaVersion = "machinist-kubelet-version"
	// metaNames and metaTags record the metadata names and the tags of the specification. When a name or a tag is
	// removed from the specification, Update removes it from the server.
	metaNames = "machinist-metadata-names"
	metaTags  = "machinist-tags"
	// metaServer is an entry of a volume: the name of the server that the volume was created for.
	metaServer = "machinist-server"
	// metaParts is "true" if the ports and volumes that another system created for the server are deleted with it.
	metaParts = "machinist-parts"
	// metaAdoptable allows the adoption of a server if it is "true".
	metaAdoptable = "machinist-adoptable"
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
	return owner{cluster: cluster, machine: m}, nil
}

// base returns the common prefix of the names of the owner's resources.
func (o owner) base() string { return naming.Base(o.cluster, o.machine) }

func (o owner) owns(metadata map[string]string) bool {
	return metadata[provider.TagCluster] == o.cluster && metadata[provider.TagMachineUID] == string(o.machine.UID)
}

const maxMetadataBytes = 255

// identity returns the three tags that identify the owner in the metadata of a server or volume. The Machine's name is
// only for information.
func (o owner) identity() map[string]string {
	key := o.machine.Namespace + "/" + o.machine.Name
	return map[string]string{
		provider.TagCluster: o.cluster, provider.TagMachineUID: string(o.machine.UID),
		provider.TagMachine: key[:min(len(key), maxMetadataBytes)],
	}
}

// The description of a port identifies its owner, because Neutron ignores tags in the call that creates a port. The
// Machine's name at the end is only for information and may be truncated.
const (
	descriptionPrefix   = "machinist"
	maxDescriptionBytes = 255
)

// description is the same for all ports of the owner, so that Neutron can search for it.
func (o owner) description() string {
	text := fmt.Sprintf("%s cluster=%s uid=%s machine=%s/%s", descriptionPrefix, o.cluster, o.machine.UID,
		o.machine.Namespace, o.machine.Name)
	return text[:min(len(text), maxDescriptionBytes)]
}

// parseDescription returns the owner in the description of a port. If there is none, ok is false.
func parseDescription(text string) (cluster string, uid types.UID, key string, ok bool) {
	fields := strings.Split(text, " ")
	if len(fields) != 4 || fields[0] != descriptionPrefix {
		return "", "", "", false
	}
	for i, name := range []string{"cluster=", "uid=", "machine="} {
		value, is := strings.CutPrefix(fields[i+1], name)
		if !is || value == "" {
			return "", "", "", false
		}
		fields[i+1] = value
	}
	return fields[1], types.UID(fields[2]), fields[3], true
}

func portName(server string, i int) string    { return fmt.Sprintf("%s-port-%d", server, i) }
func volumeName(server, volume string) string { return server + "-" + volume }

var portNameFormat = regexp.MustCompile(`-port-[0-9]+$`)

// serverOfPort returns the name of the server that a port was created for.
func serverOfPort(name string) string { return portNameFormat.ReplaceAllString(name, "") }

// providerIDPrefix is the prefix that OpenStack's cloud controller manager uses.
const providerIDPrefix = "openstack://"

var idFormat = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// providerID returns "openstack:///UUID" or, if provider IDs are regional, "openstack://REGION/UUID".
// https://github.com/kubernetes/cloud-provider-openstack
func (c *clients) providerID(server string) string {
	if c.regional {
		return providerIDPrefix + c.region + "/" + server
	}
	return providerIDPrefix + "/" + server
}

func parseProviderID(id string) (region, server string, err error) {
	rest, ours := strings.CutPrefix(id, providerIDPrefix)
	region, server, found := strings.Cut(rest, "/")
	if !ours || !found || len(region) > 255 || !idFormat.MatchString(server) {
		return "", "", provider.Errorf(provider.InvalidArgument,
			"provider ID %.256q does not have the form openstack:///UUID", id)
	}
	return region, server, nil
}

// The scope of an instance contains the region and the name of the server. Parts can be found by this name after the
// server is gone.
const (
	scopePrefix    = "region="
	scopeSeparator = " name="
)

func scopeOf(region, server string) string { return scopePrefix + region + scopeSeparator + server }

func parseScope(scope string) (region, server string, ok bool) {
	rest, ok := strings.CutPrefix(scope, scopePrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, scopeSeparator)
}

// regionFor returns the region in the provider ID, the scope or the specification. It also returns the ID of the
// server.
func regionFor(providerID, scope string, spec []byte) (region, server string, err error) {
	if providerID != "" {
		if region, server, err = parseProviderID(providerID); err != nil || region != "" {
			return region, server, err
		}
	}
	if region, _, ok := parseScope(scope); ok {
		return region, server, nil
	}
	return regionOf(spec), server, nil
}

// clientsFor returns the clients for the region of a server, and the ID of the server. The ID is empty if the request
// has no provider ID.
func (d *Driver) clientsFor(ctx context.Context, class provider.Class, providerID, scope string) (c *clients, id string,
	err error) {
	region, id, err := regionFor(providerID, scope, class.Spec)
	if err == nil {
		c, err = d.clients(ctx, class.Credentials, region)
	}
	return c, id, err
}

// specHash hashes the fields that cannot change in place.
func specHash(s machine.Spec) string {
	s.Metadata, s.Tags, s.SecurityGroups = nil, nil, nil
	ports := make([]machine.Port, len(s.Ports))
	copy(ports, s.Ports)
	for i := range ports {
		ports[i].SecurityGroups = nil
	}
	s.Ports = ports
	raw, err := json.Marshal(s)
	if err != nil {
		return "" // Marshalling a Spec cannot fail.
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:12])
}
