package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/manifests/sources"
)

const (
	oldNamespace = "kube-system"
	osmNamespace = "cloud-init-settings"
	adopter      = "sim"
)

// oldFleet is a fleet of another system together with its instances. oldFleet implements migration.Cloud.
type oldFleet struct {
	machines, perSet, workers int

	mu    sync.Mutex
	uids  map[string]types.UID // UIDs of the old machines, by name
	nodes map[string]types.UID
	// owners are the UIDs of the Machines in the tags of the instances, by name.
	owners map[string]types.UID
}

func newOldFleet(machines, perSet, workers int) *oldFleet {
	return &oldFleet{machines: machines, perSet: perSet, workers: workers, uids: map[string]types.UID{},
		nodes: map[string]types.UID{}, owners: map[string]types.UID{}}
}

const ownedBy = "machine-controller/owned-by"

// idPrefix is followed by the name of the machine.
const idPrefix = "sim:///"

func (f *oldFleet) create(ctx context.Context, c client.Client) error {
	sample := map[string]*unstructured.Unstructured{}
	for _, o := range sources.Samples(provider.SourceClusterK8s)["healthy"] {
		if o.GetName() != "alone" {
			sample[o.GetKind()] = o
		}
	}
	account := secret("azure-account", "client", "0123456789abcdef")
	account.Namespace, account.StringData["secret"] = oldNamespace, "0123456789abcdef"
	if err := c.Create(ctx, account); err != nil {
		return fmt.Errorf("create the account: %w", err)
	}
	osm := &corev1.Namespace{}
	osm.Name = osmNamespace
	if err := c.Create(ctx, osm); err != nil {
		return fmt.Errorf("create namespace %s: %w", osm.Name, err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(f.workers)
	for first := 0; first < f.machines; first += f.perSet {
		pool := fmt.Sprintf("pool-%d", first/f.perSet)
		data := secret(pool+"-"+oldNamespace+"-bootstrap-config", "cloud-config", userData)
		data.Namespace = osm.Name
		if err := c.Create(ctx, data); err != nil {
			return fmt.Errorf("create the user data: %w", err)
		}
		n := min(f.perSet, f.machines-first)
		d, err := f.createLike(ctx, c, sample["MachineDeployment"], pool, pool, nil, n)
		if err != nil {
			return err
		}
		s, err := f.createLike(ctx, c, sample["MachineSet"], pool+"-5f94495bd9", pool, d, n)
		if err != nil {
			return err
		}
		for i := range n {
			group.Go(func() error {
				name := fmt.Sprintf("%s-%05d", s.GetName(), i)
				m, err := f.createLike(ctx, c, sample["Machine"], name, pool, s, 0)
				if err != nil {
					return err
				}
				node := nodeOf(instance{idPrefix + name, name}, time.Now())
				node.Labels[ownedBy] = string(m.GetUID())
				if err := c.Create(ctx, node); err != nil {
					return fmt.Errorf("create Node %s: %w", name, err)
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				f.uids[name], f.nodes[name] = m.GetUID(), node.UID
				return nil
			})
		}
	}
	return group.Wait()
}

func (f *oldFleet) createLike(ctx context.Context, c client.Client, like *unstructured.Unstructured, name, pool string,
	owner *unstructured.Unstructured, replicas int) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(like)
	if err != nil {
		return nil, fmt.Errorf("encode the sample: %w", err)
	}
	// The name of the sample also occurs in its labels and selectors, and in the name of its Node. So replace the name
	// everywhere.
	text = []byte(strings.NewReplacer(like.GetName(), name, `"workerset":"general"`, `"workerset":"`+pool+`"`).
		Replace(string(text)))
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("decode the sample: %w", err)
	}
	o.SetName(name)
	o.SetResourceVersion("")
	o.SetUID("")
	o.SetGeneration(0)
	if owner != nil {
		owners := o.GetOwnerReferences()
		owners[0].Name, owners[0].UID = owner.GetName(), owner.GetUID()
		o.SetOwnerReferences(owners)
	}
	if replicas > 0 {
		if err := unstructured.SetNestedField(o.Object, int64(replicas), "spec", "replicas"); err != nil {
			return nil, fmt.Errorf("set the replicas of %s: %w", name, err)
		}
	}
	if err := c.Create(ctx, o); err != nil {
		return nil, fmt.Errorf("create the old %s %s: %w", o.GetKind(), name, err)
	}
	return o, nil
}

// adopt does the provider's work for unpaused Machines, but writes only the final status.
func (f *oldFleet) adopt(ctx context.Context, c client.Client, machines []unpausedMachine) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(f.workers)
	for _, m := range machines {
		f.mu.Lock()
		f.owners[m.name] = m.uid
		node := f.nodes[m.name]
		f.mu.Unlock()
		group.Go(func() error {
			o := &v1beta1.Machine{}
			o.Namespace, o.Name = namespace, m.name
			patch := fmt.Appendf(nil, `{"status":{"instance":{"state":"Running"},"nodeRef":{"name":%q,"uid":%q},"conditions":[{`+
				`"type":"Launched","status":"True","reason":"Adopted","message":"","lastTransitionTime":%q}]}}`, m.name, node,
				time.Now().UTC().Format(time.RFC3339))
			if err := c.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)); err != nil {
				return fmt.Errorf("adopt for Machine %s: %w", m.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (f *oldFleet) Name() string                { return adopter }
func (f *oldFleet) CreateSettle() time.Duration { return 0 }

func (f *oldFleet) Validate(context.Context, provider.ValidateRequest) error { return nil }

// Locate ignores the description in the request, and returns all instances. A cloud does not know from which
// description an instance was created.
func (f *oldFleet) Locate(context.Context, provider.LocateRequest) ([]provider.LocatedInstance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]provider.LocatedInstance, 0, len(f.uids))
	for name, uid := range f.uids {
		all = append(all, provider.LocatedInstance{Instance: provider.Instance{ProviderID: idPrefix + name,
			State: provider.StateRunning, NodeName: name}, Machine: name, MachineUID: uid})
	}
	return all, nil
}

func (f *oldFleet) Import(context.Context, provider.ImportRequest) (provider.ImportedSpec, error) {
	return provider.ImportedSpec{Spec: []byte(`{"apiVersion":"bench.machinist.dev/v1","kind":"BenchMachine","instanceType":"one"}`)},
		nil
}

func (f *oldFleet) List(_ context.Context, req provider.ListRequest) (page provider.ListPage, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, uid := range f.owners {
		page.Instances = append(page.Instances, provider.Instance{ProviderID: idPrefix + name, ClusterID: req.ClusterID,
			MachineUID: uid})
	}
	return page, nil
}

func (f *oldFleet) Release(context.Context, provider.ReleaseRequest) error { return nil }
func (f *oldFleet) Disown(context.Context, provider.DisownRequest) error   { return nil }

func (f *oldFleet) Find(context.Context, provider.FindRequest) ([]provider.FoundInstance, error) {
	return nil, provider.Errorf(provider.Unimplemented, "the benchmark has only instances of an old system")
}

type unpausedMachine struct {
	name string
	uid  types.UID
}

type counts struct{ writes, status int }

// countingClient counts the writes of the migrator, without dry runs.
type countingClient struct {
	client.Client

	mu       sync.Mutex
	done     counts
	unpaused []unpausedMachine
}

func newCountingClient(api client.WithWatch) *countingClient {
	c := &countingClient{}
	c.Client = interceptor.NewClient(api, interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if all := (&client.CreateOptions{}).ApplyOptions(options); len(all.DryRun) > 0 {
				return api.Create(ctx, o, options...)
			}
			return c.count(api.Create(ctx, o, options...), false)
		},
		Update: func(ctx context.Context, api client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			return c.count(api.Update(ctx, o, options...), false)
		},
		Delete: func(ctx context.Context, api client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return c.count(api.Delete(ctx, o, options...), false)
		},
		Patch: func(ctx context.Context, api client.WithWatch, o client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			oldAnnotations := o.GetAnnotations()
			err := c.count(api.Patch(ctx, o, patch, options...), false)
			if m, ok := o.(*v1beta1.Machine); ok && err == nil {
				_, before := oldAnnotations[v1beta1.AnnotationPaused]
				if _, after := m.Annotations[v1beta1.AnnotationPaused]; before && !after {
					c.mu.Lock()
					defer c.mu.Unlock()
					c.unpaused = append(c.unpaused, unpausedMachine{m.Name, m.UID})
				}
			}
			return err
		},
		SubResourceUpdate: func(ctx context.Context, api client.Client, subresource string, o client.Object,
			options ...client.SubResourceUpdateOption) error {
			return c.count(api.SubResource(subresource).Update(ctx, o, options...), true)
		},
	})
	return c
}

func (c *countingClient) count(err error, status bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.done.writes++
		if status {
			c.done.status++
		}
	}
	return err
}

func (c *countingClient) counts() counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}

// takeUnpaused returns the Machines that were unpaused since the last call.
func (c *countingClient) takeUnpaused() []unpausedMachine {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.unpaused
	c.unpaused = nil
	return all
}
