package driver

import (
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

// Metadata of a server beside the tags of package provider.
const (
	// metaSpec is a hash of all of the specification that cannot change in place.
	metaSpec = "machinist-spec"
	// metaVersion is the kubelet version that the user data was rendered for.
	metaVersion = "machinist-kubelet-version"
	// metaNames and metaTags are the specification's own metadata and tags, so that one that is removed from it can be
	// removed from the server.
	metaNames = "machinist-metadata-names"
	metaTags  = "machinist-tags"
	// metaServer is the name of the server that a volume was made for.
	metaServer = "machinist-server"
	// metaAdoptable, with the value "true", lets a server be adopted.
	metaAdoptable = "machinist-adoptable"
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
	return owner{cluster: cluster, machine: m}, nil
}

// base is what the names of all that is made for the owner begin with.
func (o owner) base() string { return naming.Base(o.cluster, o.machine) }

// owns reports whether metadata are those of the cluster and of the machine.
func (o owner) owns(metadata map[string]string) bool {
	return metadata[provider.TagCluster] == o.cluster && metadata[provider.TagMachineUID] == string(o.machine.UID)
}

// maxMetadataBytes is how long a value of metadata is at most.
const maxMetadataBytes = 255

// identity are the three tags that a server and a volume carry as metadata. That of the Machine's name is for people.
func (o owner) identity() map[string]string {
	key := o.machine.Namespace + "/" + o.machine.Name
	return map[string]string{
		provider.TagCluster: o.cluster, provider.TagMachineUID: string(o.machine.UID),
		provider.TagMachine: key[:min(len(key), maxMetadataBytes)],
	}
}

// A port's description names its owner: Neutron writes it with the port, while it drops tags that come with a creation.
// The Machine's name is in it for people, as far as there is room.
const (
	descriptionPrefix   = "machinist"
	maxDescriptionBytes = 255
)

// description is that of the owner's ports. All of them have the same, so that Neutron finds them by it.
func (o owner) description() string {
	text := fmt.Sprintf("%s cluster=%s uid=%s machine=%s/%s", descriptionPrefix, o.cluster, o.machine.UID,
		o.machine.Namespace, o.machine.Name)
	return text[:min(len(text), maxDescriptionBytes)]
}

// describedOwner reads a description. It reports false for one that names no owner.
func describedOwner(text string) (cluster string, uid types.UID, key string, ok bool) {
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

// serverOfPort is the name of the server that a port was made for.
func serverOfPort(name string) string { return portNameFormat.ReplaceAllString(name, "") }

// providerIDPrefix is what Kubernetes' cloud controller manager for OpenStack writes.
const providerIDPrefix = "openstack://"

var idFormat = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// providerID is "openstack:///UUID", or with the region before the last slash where provider IDs are regional.
// https://github.com/kubernetes/cloud-provider-openstack
func (c *clients) providerID(server string) string {
	if c.regional {
		return providerIDPrefix + c.region + "/" + server
	}
	return providerIDPrefix + "/" + server
}

// locate reads a provider ID, and the region in it.
func locate(id string) (region, server string, err error) {
	rest, ours := strings.CutPrefix(id, providerIDPrefix)
	region, server, found := strings.Cut(rest, "/")
	if !ours || !found || len(region) > 255 || !idFormat.MatchString(server) {
		return "", "", provider.Errorf(provider.InvalidArgument, "provider ID %.256q is not openstack:///UUID", id)
	}
	return region, server, nil
}

// An instance's scope has the region and the name of the server, whose parts are found by it when the server is gone.
const (
	scopePrefix    = "region="
	scopeSeparator = " name="
)

func scopeOf(region, server string) string { return scopePrefix + region + scopeSeparator + server }

// parseScope reads what scopeOf wrote.
func parseScope(scope string) (region, server string, ok bool) {
	rest, ok := strings.CutPrefix(scope, scopePrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, scopeSeparator)
}

// regionFor is the region of a call about an instance: that of its provider ID, of its scope, or of the specification.
func regionFor(providerID, scope string, spec []byte) (region, server string, err error) {
	if providerID != "" {
		if region, server, err = locate(providerID); err != nil || region != "" {
			return region, server, err
		}
	}
	if region, _, ok := parseScope(scope); ok {
		return region, server, nil
	}
	return regionOf(spec), server, nil
}

// specHash is over all that cannot change in place.
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
		return "" // Nothing in it cannot be JSON.
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:12])
}
