package driver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/legacy"
	"machinist.dev/machinist/simcloud"
)

// These tags are set by the controller of an old system. The controller finds instances by LegacyTagRole, and deletes
// those without a Machine.
const (
	LegacyTagMachine    = "legacy-machine"
	LegacyTagMachineUID = "legacy-machine-uid"
	LegacyTagRole       = "legacy-role"
)

// LegacySpec is the description of an instance in all old systems. In machine.openshift.io, it also contains
// apiVersion, kind, and the names of Secrets. In cluster.x-k8s.io, it is the spec of a SimMachine.
type LegacySpec struct {
	Region string            `json:"region"`
	Size   string            `json:"size"`
	Image  string            `json:"image"`
	Tags   map[string]string `json:"tags,omitempty"`
	// Credentials is set if the old system keeps credentials in the description instead of a Secret.
	Credentials *LegacyCredentials `json:"credentials,omitempty"`
}

// LegacyCredentials are the credentials of an account. The Secrets of old systems use the same key.
type LegacyCredentials struct {
	Token string `json:"token"`
}

var _ provider.Importer = (*Driver)(nil)

// Import implements provider.Importer. Import omits the zone, because the instances of a class may be in several
// zones. Without a zone in the class, Update accepts every zone.
func (d *Driver) Import(_ context.Context, req provider.ImportRequest) (provider.ImportedSpec, error) {
	whole, err := readLegacy(req.Legacy)
	if err != nil {
		return provider.ImportedSpec{}, err
	}
	old := whole
	if req.Legacy.Source == provider.SourceClusterAPI {
		old = whole.Object("machine")
		whole.MarkRead("clusterName", "failureDomain")
		whole.Object("clusterStatus").MarkRead("network")
		whole.Object("cluster").MarkRead("region", "controlPlaneEndpoint", "identityRef")
	}
	spec := Spec{APIVersion: APIVersion, Kind: Kind, Region: old.RequiredString("region"), InstanceType: old.RequiredString("size"),
		Image: old.RequiredString("image"), Tags: old.Map("tags")}
	for _, key := range []string{LegacyTagMachine, LegacyTagMachineUID, LegacyTagRole} {
		// Otherwise a restarted old controller would delete new instances with these tags.
		delete(spec.Tags, key)
	}
	for _, key := range slices.Sorted(maps.Keys(spec.Tags)) {
		if strings.HasPrefix(key, ownTags) {
			delete(spec.Tags, key)
			old.Add(provider.Finding{Level: provider.FindingLoss, Code: "ReservedTag", Path: old.Path("tags." + key),
				Message: "the driver reserves tags with this prefix"})
		}
	}
	token := old.Object("credentials").String(credentialsKey)
	if req.Legacy.Source == provider.SourceOpenShift {
		// The caller reads the Secrets.
		old.MarkRead("apiVersion", "kind", "credentialsSecret", "userDataSecret")
	}
	if secret, found := req.Legacy.Credentials.Get(credentialsKey); found {
		token = string(secret.Reveal())
	}
	out := provider.ImportedSpec{}
	if token == "" {
		old.Object("credentials").Report(provider.FindingBlocker, provider.FindingRequiredField, credentialsKey,
			"the token of the account is missing, also in the Secret of the old system")
	} else {
		out.Credentials = map[string][]byte{credentialsKey: []byte(token)}
	}
	if out.Spec, err = json.Marshal(spec); err != nil {
		return provider.ImportedSpec{}, provider.Errorf(provider.Internal, "encode the providerSpec")
	}
	// Missing fields were reported above, so report only invalid values.
	if e, invalid := errors.AsType[*provider.Error](d.check(spec)); invalid && e.Message != isRequired {
		old.Add(provider.Finding{Level: provider.FindingBlocker, Code: provider.FindingInvalidField,
			Path: old.Path(cmp.Or(map[string]string{"instanceType": "size"}[e.Field], e.Field)), Message: e.Message})
	}
	out.Findings = whole.Findings()
	return out, nil
}

// readLegacy returns an error for a description that is not for this cloud.
func readLegacy(old provider.Legacy) (*legacy.Object, error) {
	if old.Provider != Name && (old.Source != provider.SourceClusterAPI || old.Provider != Kind) {
		return nil, provider.Errorf(provider.Unimplemented, "the old description is for the provider %.64q, not for %q",
			old.Provider, Name)
	}
	if !slices.Contains(provider.Sources(), old.Source) {
		return nil, provider.Errorf(provider.Unimplemented, "the old system %.64q is unknown", old.Source)
	}
	return legacy.Parse(old.Spec)
}

// Locate implements provider.Importer. It returns all instances in the region of the description, of any size, because
// a size may have been changed.
func (d *Driver) Locate(ctx context.Context, req provider.LocateRequest) ([]provider.LocatedInstance, error) {
	imported, err := d.Import(ctx, provider.ImportRequest{Legacy: req.Legacy})
	if err != nil {
		return nil, err
	}
	var spec Spec
	if err := json.Unmarshal(imported.Spec, &spec); err != nil || spec.Region == "" {
		return nil, provider.Errorf(provider.InvalidArgument, "the old description does not name a region")
	}
	client, err := d.client("", provider.NewCredentials(imported.Credentials))
	if err != nil {
		return nil, err
	}
	var found []provider.LocatedInstance
	seen := map[string]bool{}
	for in, err := range client.Instances(ctx, simcloud.ListInstancesOptions{Region: spec.Region,
		HasTags: []string{LegacyTagMachine}, States: liveStates(), Limit: d.pageSize}) {
		if err != nil {
			return nil, translate(err, "list the instances of the old system")
		}
		// Two pages may contain the same instance.
		if seen[in.ID] || in.State == simcloud.StateTerminated || in.Tags[LegacyTagMachine] == "" {
			continue
		}
		seen[in.ID] = true
		_, collected := in.Tags[LegacyTagRole]
		found = append(found, provider.LocatedInstance{Instance: *convert(in, ""), Machine: in.Tags[LegacyTagMachine],
			MachineUID: types.UID(in.Tags[LegacyTagMachineUID]), IsCollected: collected})
	}
	return found, nil
}

// Release implements provider.Importer. Addresses share the tags of their instance.
func (d *Driver) Release(ctx context.Context, req provider.ReleaseRequest) error {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return err
	}
	client, err := d.client(d.endpointOf(req.Scope, req.Class.Spec), req.Class.Credentials)
	if err != nil {
		return err
	}
	in, err := client.instanceByID(ctx, req.ProviderID)
	switch {
	case err != nil:
		return err
	case in == nil:
		return provider.Errorf(provider.NotFound, "release instance %s: it does not exist", req.ProviderID)
	}
	if err := own.owns(in); err != nil {
		return err
	}
	if _, collected := in.Tags[LegacyTagRole]; !collected {
		return nil
	}
	_, err = client.UpdateTags(ctx, in.ID, simcloud.UpdateTagsRequest{Remove: []string{LegacyTagRole}, If: own.tags()})
	if err != nil {
		return translate(err, "remove tag "+LegacyTagRole+" of instance "+req.ProviderID)
	}
	return nil
}

// Disown implements provider.Importer.
func (d *Driver) Disown(ctx context.Context, req provider.DisownRequest) error {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return err
	}
	client, err := d.client(d.endpointOf(req.Scope, req.Class.Spec), req.Class.Credentials)
	if err != nil {
		return err
	}
	in, err := client.instanceByID(ctx, req.ProviderID)
	if err != nil || in == nil {
		return err
	}
	ours := []string{provider.TagCluster, provider.TagMachineUID, provider.TagMachine}
	tagged := func(key string) bool { _, has := in.Tags[key]; return has }
	if !slices.ContainsFunc(ours, tagged) {
		return nil
	}
	if err := own.owns(in); err != nil {
		return err
	}
	_, err = client.UpdateTags(ctx, in.ID, simcloud.UpdateTagsRequest{Remove: ours, If: own.tags()})
	if err != nil {
		return translate(err, "remove the tags of instance "+req.ProviderID)
	}
	return nil
}

// instanceByID returns an instance without lag, or nil if it does not exist.
func (a account) instanceByID(ctx context.Context, providerID string) (*simcloud.Instance, error) {
	id, err := idOf(providerID)
	if err != nil {
		return nil, err
	}
	in, err := a.currentInstance(ctx, id)
	switch {
	case simcloud.CodeOf(err) == simcloud.CodeNotFound:
		return nil, nil
	case err != nil:
		return nil, translate(err, "read the tags of instance "+providerID)
	case in == nil || in.State == simcloud.StateTerminated:
		return nil, nil
	case in.ProviderID != providerID:
		return nil, provider.Errorf(provider.FailedPrecondition, "the provider ID of instance %s is %s, not %s", id,
			in.ProviderID,
			providerID)
	}
	return in, nil
}
