// Package hosts simulates the guests of an OpenStack whose hypervisors are fake. Like a real guest, a simulated one
// reads its user data from the metadata service and joins the cluster.
package hosts

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"k8s.io/utils/clock"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/host"
)

// Options configure a Simulator.
type Options struct {
	// Compute is a client of Nova for an administrator.
	Compute *gophercloud.ServiceClient
	// Region is the value of the Nodes' region label.
	Region string
	// MetadataURL is the URL of Nova's metadata service. A proxy in front of the service signs server IDs with
	// MetadataSecret.
	MetadataURL, MetadataSecret string
}

// poll is the interval between two lists of all servers. Nova does not notify clients of changes.
const poll = 500 * time.Millisecond

const maxAnswerBytes = 1 << 20

// Simulator simulates the guests until Close.
type Simulator struct {
	options Options
	fleet   *host.Fleet
	stop    context.CancelFunc
	done    chan struct{}

	mu sync.Mutex
	// guests contains the guests of all servers that were seen running, by server ID.
	guests map[string]*guest
}

type guest struct {
	number  int
	running bool
	boots   int
	disk    host.Disk
}

// Start starts the simulation.
func Start(o Options) *Simulator {
	ctx, stop := context.WithCancel(context.Background())
	p := &Simulator{options: o, fleet: host.NewFleet(clock.RealClock{}), stop: stop, done: make(chan struct{}),
		guests: map[string]*guest{}}
	go p.run(ctx)
	return p
}

// Close stops all guests.
func (p *Simulator) Close() {
	p.stop()
	<-p.done
	p.fleet.Close()
}

// Booted returns the number of servers that have booted so far.
func (p *Simulator) Booted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.guests)
}

func (p *Simulator) run(ctx context.Context) {
	defer close(p.done)
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		// Running guests continue to run while the services are unavailable.
		_ = p.reconcile(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// reconcile starts a guest for each running server, and stops all other guests.
func (p *Simulator) reconcile(ctx context.Context) error {
	page, err := servers.List(p.options.Compute, servers.ListOpts{AllTenants: true}).AllPages(ctx)
	if err != nil {
		return err
	}
	all, err := servers.ExtractServers(page)
	if err != nil {
		return err
	}
	running := map[string]bool{}
	for i := range all {
		s := &all[i]
		if s.Status != "ACTIVE" && (s.Status != "ERROR" || s.PowerState != servers.RUNNING) {
			continue
		}
		running[s.ID] = true
		if !p.isRunning(s.ID) {
			if err := p.boot(ctx, s); err != nil {
				return err
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, g := range p.guests {
		if g.running && !running[id] {
			g.running = false
			p.fleet.Stop(id)
		}
	}
	return nil
}

func (p *Simulator) isRunning(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.guests[id]
	return g != nil && g.running
}

func (p *Simulator) boot(ctx context.Context, s *servers.Server) error {
	userData, err := p.metadata(ctx, s, "user_data")
	if err != nil {
		return err
	}
	raw, err := p.metadata(ctx, s, "meta_data.json")
	if err != nil {
		return err
	}
	var document struct {
		Hostname string `json:"hostname"`
	}
	if err := json.Unmarshal(raw, &document); err != nil {
		return fmt.Errorf("read the metadata of server %s: %w", s.ID, err)
	}
	hostname, _, _ := strings.Cut(document.Hostname, ".")
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.guests[s.ID]
	if g == nil {
		g = &guest{number: len(p.guests)}
		p.guests[s.ID] = g
	}
	g.running = true
	g.boots++
	p.fleet.Start(host.Spec{
		ID: s.ID, ProviderID: "openstack:///" + s.ID, Hostname: hostname, Region: p.options.Region, Zone: s.AvailabilityZone,
		Type: instanceType(s.Flavor), Image: simcloud.Image{Name: "openstack"}, Address: addressOf(s),
		PodNet:   netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64 + byte(g.number>>8&0x3f), byte(g.number), 0}), 24),
		UserData: userData, Boots: g.boots, Disk: g.disk,
	}, diskKeeper{simulator: p, guest: g})
	return nil
}

// metadata reads a document of a server from the metadata service. A server without user data has no such document.
// https://docs.openstack.org/nova/latest/user/metadata.html
func (p *Simulator) metadata(ctx context.Context, s *servers.Server, document string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		strings.TrimRight(p.options.MetadataURL, "/")+"/openstack/latest/"+document, nil)
	if err != nil {
		return nil, err
	}
	signature := hmac.New(sha256.New, []byte(p.options.MetadataSecret))
	signature.Write([]byte(s.ID))
	request.Header.Set("X-Instance-ID", s.ID)
	request.Header.Set("X-Tenant-ID", s.TenantID)
	request.Header.Set("X-Instance-ID-Signature", hex.EncodeToString(signature.Sum(nil)))
	request.Header.Set("X-Forwarded-For", addressOf(s).String())
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		return io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	case http.StatusNotFound:
		return nil, nil
	}
	return nil, fmt.Errorf("read %s of server %s: %s", document, s.ID, response.Status)
}

func instanceType(flavor map[string]any) simcloud.InstanceType {
	number := func(key string) int {
		n, _ := flavor[key].(float64)
		return int(n)
	}
	name, _ := flavor["original_name"].(string)
	return simcloud.InstanceType{Name: name, CPUs: max(1, number("vcpus")), MemoryMiB: int64(max(512, number("ram"))),
		EphemeralStorageGiB: int64(max(1, number("disk"))), Architecture: "amd64"}
}

func addressOf(s *servers.Server) netip.Addr {
	for _, entries := range s.Addresses {
		list, _ := entries.([]any)
		for _, entry := range list {
			fields, _ := entry.(map[string]any)
			text, _ := fields["addr"].(string)
			if address, err := netip.ParseAddr(text); err == nil {
				return address
			}
		}
	}
	return netip.AddrFrom4([4]byte{10, 0, 0, 4})
}

// diskKeeper keeps the disk of a guest while it is stopped.
type diskKeeper struct {
	simulator *Simulator
	guest     *guest
}

// Save implements host.Reporter.
func (r diskKeeper) Save(d host.Disk) error {
	r.simulator.mu.Lock()
	defer r.simulator.mu.Unlock()
	r.guest.disk = d
	return nil
}

// Report implements host.Reporter.
func (diskKeeper) Report(simcloud.HostStatus) {}

// Print implements host.Reporter.
func (diskKeeper) Print(string) {}
