package driver

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/legacy"
	"machinist.dev/machinist/providers/openstack/machine"
)

var _ provider.Importer = (*Driver)(nil)

const (
	// clusterKeys and roleKeys are prefixes of the names of the metadata by which machine.sapcloud.io finds its
	// servers. Its collector deletes servers that have both and no Machine.
	clusterKeys = "kubernetes.io-cluster-"
	roleKeys    = "kubernetes.io-role-"
	// machineUIDKey is the name of the metadata with the UID of the Machine of machine.k8s.io, machines.k8s.io or
	// cluster.k8s.io.
	machineUIDKey = "machine-uid"
	// openShiftClusterID is the name of the metadata, and the part of a tag before "=", that names the cluster of
	// machine.openshift.io.
	openShiftClusterID = "openshiftClusterID"
	// openShiftTag is a tag of all servers of machine.openshift.io.
	openShiftTag = "cluster-api-provider-openstack"
)

// openShiftKind is the kind of a description of machine.openshift.io, in lower case. Some descriptions of
// cluster.k8s.io have this kind, too.
const openShiftKind = "openstackproviderspec"

// clusterAPIKind is the kind of a description of cluster.x-k8s.io, in lower case.
const clusterAPIKind = "openstackmachine"

// translation contains the input and the results of Import, which converts a description of an old system to a
// providerSpec.
type translation struct {
	// format is the system whose format the description has.
	format string
	old    *legacy.Object
	// credentials has the keys of this provider's Secret.
	credentials map[string][]byte
	// unusableCredentials is true if a Blocker about the credentials was reported.
	unusableCredentials bool
	facts               facts
	spec                machine.Spec
}

// Import implements provider.Importer. If the old description selects a network, a subnet or a security group by
// properties other than its name, Import reads its ID from the facts of an instance.
func (d *Driver) Import(_ context.Context, req provider.ImportRequest) (provider.ImportedSpec, error) {
	t, err := newTranslation(req.Legacy, req.Facts)
	if err != nil {
		return provider.ImportedSpec{}, err
	}
	switch t.format {
	case provider.SourceGardener:
		t.gardener()
	case provider.SourceOpenShift:
		t.openShift()
	case provider.SourceClusterAPI:
		t.clusterAPI()
	default:
		t.kubermatic()
	}
	if _, err := d.options.parse(provider.NewCredentials(t.credentials)); err != nil && !t.unusableCredentials {
		t.credentialsFinding(provider.FindingBlocker, provider.FindingInvalidField, "",
			"the provider cannot use the credentials of the old system: "+err.Error())
	}
	raw, err := json.Marshal(t.spec)
	if err != nil {
		return provider.ImportedSpec{}, provider.Errorf(provider.Internal, "write the providerSpec")
	}
	out := provider.ImportedSpec{Spec: raw, Credentials: t.credentials, Findings: t.old.Findings()}
	_, err = machine.ParseSpec(raw)
	if e, invalid := errors.AsType[*provider.Error](err); invalid && !slices.ContainsFunc(out.Findings, isBlocker) {
		out.Findings = append(out.Findings, provider.Finding{Level: provider.FindingBlocker,
			Code: provider.FindingInvalidField, Message: "the translated class is not valid: " + e.Field + ": " + e.Message})
	}
	return out, nil
}

func isBlocker(f provider.Finding) bool { return f.Level == provider.FindingBlocker }

// newTranslation reads credentials from the description and from the old system's Secret.
func newTranslation(old provider.Legacy, knownFacts []byte) (*translation, error) {
	if !slices.Contains(provider.Sources(), old.Source) {
		return nil, provider.Errorf(provider.Unimplemented, "the old system %.64q is unknown", old.Source)
	}
	format := old.Source
	switch strings.ToLower(old.Provider) {
	case Name:
	case openShiftKind:
		format = provider.SourceOpenShift
	case clusterAPIKind:
	default:
		return nil, provider.Errorf(provider.Unimplemented, "the old description is for the provider %.64q, not for %q",
			old.Provider, Name)
	}
	object, err := legacy.Parse(old.Spec)
	if err != nil {
		return nil, err
	}
	t := &translation{format: format, old: object,
		spec: machine.Spec{APIVersion: machine.APIVersion, Kind: machine.Kind}}
	if len(knownFacts) > 0 && json.Unmarshal(knownFacts, &t.facts) != nil {
		return nil, provider.Errorf(provider.InvalidArgument, "the facts do not have the format that Locate returns")
	}
	t.readCredentials(old.Credentials)
	return t, nil
}

// description returns the object with the fields of the instance.
func (t *translation) description() *legacy.Object {
	if t.format == provider.SourceGardener && t.old.Has("spec") {
		return t.old.Object("spec")
	}
	return t.old
}

// image returns a reference to an image by ID or by name.
func image(ref string) machine.Image {
	if idFormat.MatchString(strings.ToLower(ref)) {
		return machine.Image{ID: ref}
	}
	return machine.Image{Name: ref}
}

// addMetadata adds the entries of a map to the metadata of new servers.
func (t *translation) addMetadata(description *legacy.Object, field string) {
	all := description.Map(field)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.addMetadatum(name, all[name], description.Path(field+"."+name))
	}
}

// addMetadatum adds an entry to the metadata of new servers, unless an old system finds the servers of its own Machines
// by this entry. An entry that the providerSpec cannot have is a Loss.
func (t *translation) addMetadatum(name, text, path string) {
	if lower := strings.ToLower(name); strings.Contains(lower, roleKeys) || lower == machineUIDKey {
		return
	}
	all := map[string]string{name: text}
	maps.Copy(all, t.spec.Metadata)
	if err := machine.CheckMetadata(all); err != nil {
		t.addLoss("UnsupportedMetadata", path, err)
		return
	}
	t.spec.Metadata = all
}

// addTags adds the tags of a description to the tags of new servers. A tag that the providerSpec cannot have is a Loss.
func (t *translation) addTags(description *legacy.Object) {
	for i, tag := range description.Strings("tags") {
		if slices.Contains(t.spec.Tags, tag) {
			continue
		}
		all := append(slices.Clone(t.spec.Tags), tag)
		if err := machine.CheckTags(all); err != nil {
			t.addLoss("UnsupportedTag", description.Path("tags["+strconv.Itoa(i)+"]"), err)
			continue
		}
		t.spec.Tags = all
	}
}

func (t *translation) addLoss(code, path string, err error) {
	message := err.Error()
	if e, ok := errors.AsType[*provider.Error](err); ok {
		message = e.Message
	}
	t.old.Add(provider.Finding{Level: provider.FindingLoss, Code: code, Path: path,
		Message: "new servers lack this entry: " + message})
}

// addressPair returns an address or a network in the form that the providerSpec requires: with the first address of the
// network.
func addressPair(text string) machine.AddressPair {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		text = prefix.Masked().String()
	}
	return machine.AddressPair{Address: text}
}

// int32Of limits a number to the range of int32, which exceeds all limits of the specification.
func int32Of(o *legacy.Object, name string) int32 {
	return int32(max(math.MinInt32, min(math.MaxInt32, o.Int(name)))) //nolint:gosec // The limits above ensure the range.
}
