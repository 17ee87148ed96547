package driver_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/aws/driver"
	"machinist.dev/machinist/providers/aws/fakeaws"
)

// byTags are changes of the sample after which it refers to its subnet and security group by tags.
func byTags() []any {
	return []any{"subnet", map[string]any{"tags": map[string]any{"role": "nodes", "zone": "a"}},
		"securityGroups", []any{map[string]any{"tags": map[string]any{"role": "nodes"}}}}
}

// journey uses every action of the driver, and returns the first error.
func (c *cloud) journey() error {
	c.options.InterruptionQueues = map[string]string{"eu-west-1": c.url + queuePath}
	d := c.driver()
	first := class(append(byTags(), "hostnameType", "resource-name")...)
	if _, err := d.Capacity(c.Context(), provider.CapacityRequest{Class: first}); err != nil {
		return err
	}
	in, err := d.Create(c.Context(), request("traveller", first))
	if err != nil {
		return err
	}
	c.Send(queuePath, spotWarning(idOf(in), time.Now()))
	c.Send(queuePath, "no event")
	if _, err := d.Interruptions(c.Context(), provider.InterruptionsRequest{Class: first,
		ClusterID: cluster}); err != nil {
		return err
	}
	if _, err := d.List(c.Context(), provider.ListRequest{Class: first, ClusterID: cluster}); err != nil {
		return err
	}
	more := []any{"hostnameType", "resource-name", "tags", map[string]any{"owner": "red"},
		"sourceDestCheck", false, "metadataOptions.httpPutResponseHopLimit", 2, "rootVolume.sizeGiB", 40,
		"instanceType", "m6i.xlarge", "resize", "StopAndStart"}
	for _, profile := range []any{"nodes", "other-nodes", nil} {
		req := provider.UpdateRequest{Machine: machineOf("traveller"), ClusterID: cluster, ProviderID: in.ProviderID,
			Scope: in.Scope, Version: "v1.36.3", NodeDrained: true,
			Class: class(append(append(byTags(), more...), "iamInstanceProfile", profile)...)}
		if outcome, err := c.tryUpdate(d, req); err != nil || outcome != provider.UpdateDone {
			return fmt.Errorf("update to the profile %v: %s: %w", profile, outcome, err)
		}
	}
	c.KeepParts()
	del := provider.DeleteRequest{Machine: machineOf("traveller"), Class: first, ClusterID: cluster,
		ProviderID: in.ProviderID, Scope: in.Scope}
	for range 100 {
		result, err := d.Delete(c.Context(), del)
		if err != nil || result.Gone {
			return err
		}
	}
	return fmt.Errorf("Delete does not end")
}

func (c *cloud) tryUpdate(d *driver.Driver, req provider.UpdateRequest) (provider.UpdateOutcome, error) {
	for range 100 {
		result, err := d.Update(c.Context(), req)
		if err != nil || result.Outcome != provider.UpdateInProgress {
			return result.Outcome, err
		}
	}
	return provider.UpdateInProgress, nil
}

func spotWarning(id string, at time.Time) string {
	return fmt.Sprintf(`{"version":"0","id":"1","source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning",`+
		`"account":"111122223333","time":%q,"region":"eu-west-1","detail":{"instance-id":%q,"instance-action":"terminate"}}`,
		at.UTC().Format(time.RFC3339), id)
}

func policy(t *testing.T) *fakeaws.Policy {
	t.Helper()
	raw, err := os.ReadFile("../policy.json")
	if err != nil {
		t.Fatal(err)
	}
	p, err := fakeaws.ParsePolicy(raw)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// adoption sets the tags on an instance of another user.
func (c *cloud) adoption() error {
	id, remove, err := c.launch(c.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = remove(c.Context()) }()
	_, err = c.driver().Adopt(c.Context(), provider.AdoptRequest{Machine: machineOf("adopted"), Class: class(),
		ClusterID: cluster, ProviderID: id})
	return err
}

func TestPolicyIsEnoughAndNothingIsUnused(t *testing.T) {
	p := policy(t)
	c := newCloud(t, func(o *fakeaws.Options) { o.Policy = p })
	c.must(c.journey())
	c.must(c.adoption())
	c.nothingLeft()
	granted := map[string]bool{}
	for _, s := range p.Statement {
		for _, action := range s.Action {
			granted[action] = true
		}
	}
	if all, used := slices.Sorted(maps.Keys(granted)), c.UsedActions(); !slices.Equal(all, used) {
		t.Errorf("the policy grants\n%v\nand the driver used\n%v", all, used)
	}
}

// Without one of the actions, the driver fails and names this action.
func TestPolicyNeedsEachAction(t *testing.T) {
	p := policy(t)
	for i, s := range p.Statement {
		for _, action := range s.Action {
			if action == "ec2:ModifyNetworkInterfaceAttribute" && s.Sid == "UseSecurityGroups" {
				continue // The fake does not check the resources that a change refers to.
			}
			t.Run(s.Sid+"/"+action, func(t *testing.T) {
				t.Parallel()
				less := clonePolicy(t, p)
				less.Statement[i].Action = slices.DeleteFunc(less.Statement[i].Action,
					func(a string) bool { return a == action })
				c := newCloud(t, func(o *fakeaws.Options) { o.Policy = less })
				err := c.journey()
				if s.Sid == "Adopt" {
					c.must(err)
					err = c.adoption()
				}
				c.wantCode(err, provider.PermissionDenied)
				if err != nil && !strings.Contains(err.Error(), action) {
					t.Errorf("the error does not name the action: %v", err)
				}
			})
		}
	}
}

func clonePolicy(t *testing.T, p *fakeaws.Policy) *fakeaws.Policy {
	t.Helper()
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	out := &fakeaws.Policy{}
	if err := json.Unmarshal(raw, out); err != nil {
		t.Fatal(err)
	}
	return out
}
