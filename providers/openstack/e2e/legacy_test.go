//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/endpoints"
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/providers/openstack/driver"
)

// legacyFleet is a fleet of one old system.
type legacyFleet struct {
	*testing.T
	old      *oldSystems
	driver   *driver.Driver
	legacy   provider.Legacy
	class    provider.Class
	machines []*legacyMachine
}

type legacyMachine struct {
	provider.Machine
	oldUID     types.UID
	providerID string
	scope      string
	before     state
}

const legacyCluster = "e2e-legacy"

// The old systems created servers with their ports, trunks and volumes, 20 in a full run. Machinist takes them over and
// changes nothing but the metadata. Then it replaces them one by one, and finally deletes them. Nothing may remain.
func TestServersOfOtherSystemsAreTakenOver(t *testing.T) {
	cloudsYAML := cloudsYAML(t)
	member := open(t, cloudsYAML, "machinist")
	member.checkLeavesNothing(t)
	old, err := newOldSystems(t.Context(), member, cloudsYAML)
	if err != nil {
		t.Fatal(err)
	}
	legacies, err := old.legacies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	loopback := endpoints.Rules{}.AllowHosts("127.0.0.1")
	d, err := driver.New(driver.Options{PlainHTTP: true, Transport: httpapi.Transport(loopback), Endpoints: loopback,
		CreateSettle: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	// The first two sources have the same descriptions and servers as the third one.
	numbers := map[string]int{provider.SourceClusterK8s: 1, provider.SourceGardener: 1, provider.SourceOpenShift: 1}
	if fullRun() {
		numbers = map[string]int{provider.SourceClusterK8s: 6, provider.SourceGardener: 7, provider.SourceOpenShift: 7}
	}
	t.Run("fleets", func(t *testing.T) {
		for _, legacy := range legacies {
			if n := numbers[legacy.Source]; n > 0 {
				t.Run(legacy.Source, func(t *testing.T) {
					t.Parallel()
					f := &legacyFleet{T: t, old: old, driver: d, legacy: legacy}
					f.launch(n)
					f.takeOver()
					f.release()
					f.roll()
				})
			}
		}
	})
}

func (f *legacyFleet) check(err error, attempted string) {
	f.Helper()
	if err != nil {
		f.Fatalf("%s: %v", attempted, err)
	}
}

// parallelLaunches limits how many servers of an old system are created at the same time. With more servers, a busy
// host would exceed the timeouts of Nova's services.
const parallelLaunches = 2

// launch creates servers in parallel.
func (f *legacyFleet) launch(n int) {
	f.machines = make([]*legacyMachine, n)
	var running sync.WaitGroup
	free := make(chan bool, parallelLaunches)
	for i := range n {
		m := &legacyMachine{Machine: provider.Machine{Namespace: "default", UID: uuid.NewUUID(),
			Name: fmt.Sprintf("%s-%d", strings.ReplaceAll(f.legacy.Source, ".", "-"), i)}, oldUID: uuid.NewUUID()}
		f.machines[i] = m
		running.Go(func() {
			free <- true
			defer func() { <-free }()
			id, remove, err := f.old.launch(f.Context(), f.legacy, m.Name, m.oldUID)
			m.providerID = id
			if remove != nil {
				f.Cleanup(func() { _ = remove(context.WithoutCancel(f.Context())) })
			}
			if err == nil {
				m.before, err = f.old.state(f.Context(), idOf(id))
			}
			if err != nil {
				f.Errorf("create server %s: %v", m.Name, err)
			}
		})
	}
	running.Wait()
	if f.Failed() {
		f.FailNow()
	}
}

// takeOver finds the servers, converts the class, and adopts each server by its ID.
func (f *legacyFleet) takeOver() {
	found, err := f.driver.Locate(f.Context(), provider.LocateRequest{Legacy: f.legacy})
	f.check(err, "Locate")
	located := map[string]provider.LocatedInstance{}
	for _, in := range found {
		located[in.Instance.ProviderID] = in
	}
	for _, m := range f.machines {
		in, ok := located[m.providerID]
		collected := f.legacy.Source == provider.SourceGardener
		if !ok || in.Machine != m.Name || in.MachineUID != "" && in.MachineUID != m.oldUID || in.NotAdoptable != "" ||
			in.IsCollected != collected {
			f.Fatalf("Locate returns %+v for server %s (%v)", in, m.Name, ok)
		}
		m.scope = in.Instance.Scope
	}
	imported, err := f.driver.Import(f.Context(), provider.ImportRequest{Legacy: f.legacy,
		Facts: located[f.machines[0].providerID].Facts})
	f.check(err, "Import")
	for _, finding := range imported.Findings {
		if finding.Level != provider.FindingNote {
			f.Errorf("unexpected finding %+v", finding)
		}
	}
	f.Logf("the class is %s", imported.Spec)
	f.class = provider.Class{Spec: imported.Spec, Credentials: provider.NewCredentials(imported.Credentials)}
	for _, m := range f.machines {
		_, err := f.driver.Adopt(f.Context(), provider.AdoptRequest{Machine: m.Machine, Class: f.class,
			ClusterID: legacyCluster, ProviderID: m.providerID, Tags: tagsOf(m.Machine)})
		f.check(err, "adopt server "+m.Name)
		result, err := f.driver.Update(f.Context(), provider.UpdateRequest{Machine: m.Machine, Class: f.class,
			ClusterID: legacyCluster, ProviderID: m.providerID, Scope: m.scope})
		if err != nil || result.Outcome != provider.UpdateDone {
			f.Fatalf("Update of server %s: %+v, %v", m.Name, result, err)
		}
		f.checkUnchanged(m)
	}
}

func tagsOf(m provider.Machine) map[string]string {
	return map[string]string{provider.TagCluster: legacyCluster, provider.TagMachineUID: string(m.UID),
		provider.TagMachine: m.Namespace + "/" + m.Name}
}

// checkUnchanged checks that only metadata of Machinist have been added to a server and its parts.
func (f *legacyFleet) checkUnchanged(m *legacyMachine, removed ...string) {
	f.Helper()
	after, err := f.old.state(f.Context(), idOf(m.providerID))
	f.check(err, "read server "+m.Name)
	maps.DeleteFunc(after.metadata, func(key, _ string) bool {
		return strings.HasPrefix(key, "machinist-") && key != "machinist-adoptable"
	})
	want := maps.Clone(m.before.metadata)
	for _, key := range removed {
		delete(want, key)
	}
	if !maps.Equal(after.metadata, want) {
		f.Errorf("server %s has the metadata %v, want %v", m.Name, after.metadata, want)
	}
	for key, value := range m.before.server {
		if !reflect.DeepEqual(after.server[key], value) {
			f.Errorf("field %s of server %s was %v, and is %v", key, m.Name, value, after.server[key])
		}
	}
	if !maps.Equal(after.parts, m.before.parts) {
		f.Errorf("server %s had the parts %v, and has %v", m.Name, m.before.parts, after.parts)
	}
}

// release removes the metadata by which the collector of an old controller would find the servers.
func (f *legacyFleet) release() {
	for _, m := range f.machines {
		f.check(f.driver.Release(f.Context(), provider.ReleaseRequest{Machine: m.Machine, Class: f.class,
			ClusterID: legacyCluster, ProviderID: m.providerID, Scope: m.scope, Source: f.legacy.Source}),
			"release server "+m.Name)
		f.checkUnchanged(m, "kubernetes.io-role-node")
	}
	found, err := f.driver.Locate(f.Context(), provider.LocateRequest{Legacy: f.legacy})
	f.check(err, "Locate")
	for _, in := range found {
		if in.IsCollected {
			f.Errorf("the collector of the old system would still find server %s", in.Machine)
		}
	}
}

// roll replaces the servers one by one, and then deletes the new servers.
func (f *legacyFleet) roll() {
	for _, m := range f.machines {
		next := provider.Machine{Namespace: "default", Name: m.Name, UID: uuid.NewUUID()}
		in, err := f.driver.Create(f.Context(), provider.CreateRequest{Machine: next, Class: f.class,
			ClusterID: legacyCluster, Token: string(next.UID) + "-1", Tags: tagsOf(next)})
		f.check(err, "create the replacement of server "+m.Name)
		f.check(f.old.await(f.Context(), "the replacement runs", func() (bool, error) {
			in, err = f.driver.Get(f.Context(), provider.GetRequest{Machine: next, Class: f.class, ClusterID: legacyCluster,
				ProviderID: in.ProviderID, Scope: in.Scope})
			return err == nil && in.State == provider.StateRunning, err
		}), "replace server "+m.Name)
		f.deleteMachine(m.Machine, m.providerID, m.scope)
		f.deleteMachine(next, in.ProviderID, in.Scope)
	}
}

func (f *legacyFleet) deleteMachine(m provider.Machine, id, scope string) {
	f.Helper()
	f.check(f.old.await(f.Context(), "the server and its parts are gone", func() (bool, error) {
		result, err := f.driver.Delete(f.Context(), provider.DeleteRequest{Machine: m, Class: f.class,
			ClusterID: legacyCluster, ProviderID: id, Scope: scope})
		return err == nil && result.Gone, err
	}), "delete the server of machine "+m.Name)
}
