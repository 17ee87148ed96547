package conformance

import (
	"context"
	"encoding/json"
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/legacy"
)

// Tags that the old systems of fakeCloud set on servers. Disks also have the tag oldCollector.
const (
	oldMachine    = "old-machine"
	oldMachineUID = "old-machine-uid"
	oldCollector  = "old-collector"
)

func fakeLegacies(account string) []provider.Legacy {
	old := provider.Legacy{Provider: "fake",
		Spec:        provider.NewSecret([]byte(`{"size":"small","disk":{"gib":10}}`)),
		Credentials: provider.NewCredentials(map[string][]byte{"token": []byte(account)})}
	other := old
	old.Source, other.Source = provider.SourceGardener, provider.SourceOpenShift
	return []provider.Legacy{old, other}
}

// launchLegacy creates a server as its old system does. Only one of the two old systems sets the tag oldCollector.
func (c *fakeCloud) launchLegacy(ctx context.Context, old provider.Legacy, machine string, uid types.UID) (string,
	func(context.Context) error, error) {
	tags := map[string]string{oldMachine: machine, oldMachineUID: string(uid), "team": "blue"}
	if old.Source == provider.SourceGardener {
		tags[oldCollector] = "node"
	}
	return c.launch(ctx, machine, tags)
}

func (d *correct) Locate(ctx context.Context, req provider.LocateRequest) (found []provider.LocatedInstance,
	err error) {
	token, err := d.signIn(ctx, req.Legacy.Credentials)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for after, more := 0, true; more; after += d.pageSize {
		var page []server
		if page, more, err = d.cloud.listServers(ctx, token, nil, after, d.pageSize); err != nil {
			return nil, d.translate(err)
		}
		for _, s := range page {
			if in := d.convert(s); s.tags[oldMachine] != "" && !seen[in.ProviderID] {
				seen[in.ProviderID] = true
				found = append(found, provider.LocatedInstance{Instance: *in, Machine: s.tags[oldMachine],
					MachineUID: types.UID(s.tags[oldMachineUID]), IsCollected: s.tags[oldCollector] != ""})
			}
		}
	}
	return found, nil
}

func (d *correct) Import(_ context.Context, req provider.ImportRequest) (provider.ImportedSpec, error) {
	old, err := legacy.Parse(req.Legacy.Spec)
	if err != nil {
		return provider.ImportedSpec{}, err
	}
	spec, err := json.Marshal(machineSpec{APIVersion: "fake/v1", Kind: "Fake", Size: old.RequiredString("size")})
	old.Object("disk").MarkRead("gib")
	token, _ := req.Legacy.Credentials.Get("token")
	return provider.ImportedSpec{Spec: spec, Credentials: map[string][]byte{"token": token.Reveal()},
		Findings: old.Findings()}, err
}

// retag removes the given tags from a server and its disk if allowed accepts the tags of the server.
func (d *correct) retag(ctx context.Context, credentials provider.Credentials, providerID string,
	removed []string, allowed func(tags map[string]string) error) error {
	token, err := d.signIn(ctx, credentials)
	if err != nil {
		return err
	}
	id, err := idOf(providerID)
	if err != nil {
		return err
	}
	var refused error
	err = d.cloud.change(ctx, token, id, func(s *server) {
		if refused = allowed(s.tags); refused != nil {
			return
		}
		s.tags = maps.Clone(s.tags)
		disk := maps.Clone(d.cloud.parts["disk/"+s.id])
		for _, key := range removed {
			delete(s.tags, key)
			delete(disk, key)
		}
		d.cloud.parts["disk/"+s.id] = disk
	})
	if err != nil {
		return d.translate(err)
	}
	return refused
}

func (d *correct) Release(ctx context.Context, req provider.ReleaseRequest) error {
	return d.retag(ctx, req.Class.Credentials, req.ProviderID, []string{oldCollector}, func(tags map[string]string) error {
		if !includes(tags, ownerTags(req.ClusterID, req.Machine)) {
			return provider.Errorf(provider.FailedPrecondition, "%s belongs to another machine", req.ProviderID)
		}
		return nil
	})
}

func (d *correct) Disown(ctx context.Context, req provider.DisownRequest) error {
	machinistTags := []string{provider.TagCluster, provider.TagMachineUID, provider.TagMachine}
	err := d.retag(ctx, req.Class.Credentials, req.ProviderID, machinistTags, func(tags map[string]string) error {
		if tags[provider.TagCluster]+tags[provider.TagMachineUID] != "" &&
			!includes(tags, ownerTags(req.ClusterID, req.Machine)) {
			return provider.Errorf(provider.FailedPrecondition, "%s belongs to another machine", req.ProviderID)
		}
		return nil
	})
	if provider.IsNotFound(err) {
		return nil
	}
	return err
}
