// Package hosts plays the guests of an OpenStack whose hypervisors are fake: for each server that runs it reads the
// user data from the metadata service, as the server's guest would, and joins the cluster that they name.
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

// Options say whose guests are played.
type Options struct {
	// Compute is an administrator's client of Nova.
	Compute *gophercloud.ServiceClient
	// Region is written on the nodes.
	Region string
	// MetadataURL is Nova's metadata service, and MetadataSecret what a proxy in front of it signs the servers' IDs with.
	MetadataURL, MetadataSecret string
}

// poll is how often the servers are listed: nothing announces them.
const poll = 500 * time.Millisecond

// maxAnswerBytes bounds what is read of an answer of the metadata service.
const maxAnswerBytes = 1 << 20

// Player plays the guests until Close.
type Player struct {
	options Options
	fleet   *host.Fleet
	stop    context.CancelFunc
	done    chan struct{}

	mu sync.Mutex
	// guests are those of servers that were seen running, by the server's ID.
	guests map[string]*guest
}

// guest is what is known of one server's guest.
type guest struct {
	number  int
	running bool
	boots   int
	disk    host.Disk
}

// Start begins to play.
func Start(o Options) *Player {
	ctx, stop := context.WithCancel(context.Background())
	p := &Player{options: o, fleet: host.NewFleet(clock.RealClock{}), stop: stop, done: make(chan struct{}),
		guests: map[string]*guest{}}
	go p.run(ctx)
	return p
}

// Close switches all guests off.
func (p *Player) Close() {
	p.stop()
	<-p.done
	p.fleet.Close()
}

// Played is how many servers have had a guest.
func (p *Player) Played() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.guests)
}

func (p *Player) run(ctx context.Context) {
	defer close(p.done)
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		// Where services do not serve, a guest that runs goes on.
		_ = p.reconcile(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// reconcile switches on the guests of servers that run, and off all others.
func (p *Player) reconcile(ctx context.Context) error {
	page, err := servers.List(p.options.Compute, servers.ListOpts{AllTenants: true}).AllPages(ctx)
	if err != nil {
		return err
	}
	all, err := servers.ExtractServers(page)
	if err != nil {
		return err
	}
	runs := map[string]bool{}
	for i := range all {
		s := &all[i]
		if s.Status != "ACTIVE" && (s.Status != "ERROR" || s.PowerState != servers.RUNNING) {
			continue
		}
		runs[s.ID] = true
		if !p.isOn(s.ID) {
			if err := p.boot(ctx, s); err != nil {
				return err
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, g := range p.guests {
		if g.running && !runs[id] {
			g.running = false
			p.fleet.Stop(id)
		}
	}
	return nil
}

func (p *Player) isOn(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.guests[id]
	return g != nil && g.running
}

// boot switches a server's guest on.
func (p *Player) boot(ctx context.Context, s *servers.Server) error {
	userData, err := p.metadata(ctx, s, "user_data")
	if err != nil {
		return err
	}
	raw, err := p.metadata(ctx, s, "meta_data.json")
	if err != nil {
		return err
	}
	var about struct {
		Hostname string `json:"hostname"`
	}
	if err := json.Unmarshal(raw, &about); err != nil {
		return fmt.Errorf("read the metadata of server %s: %w", s.ID, err)
	}
	hostname, _, _ := strings.Cut(about.Hostname, ".")
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
		Type: typeOf(s.Flavor), Image: simcloud.Image{Name: "openstack"}, Address: addressOf(s),
		PodNet:   netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64 + byte(g.number>>8&0x3f), byte(g.number), 0}), 24),
		UserData: userData, Boots: g.boots, Disk: g.disk,
	}, reporter{player: p, guest: g})
	return nil
}

// metadata reads one document of the metadata service as the server's guest. A server without user data has none.
// https://docs.openstack.org/nova/latest/user/metadata.html
func (p *Player) metadata(ctx context.Context, s *servers.Server, document string) ([]byte, error) {
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

// typeOf reads the flavor as a server has it.
func typeOf(flavor map[string]any) simcloud.InstanceType {
	number := func(key string) int {
		n, _ := flavor[key].(float64)
		return int(n)
	}
	name, _ := flavor["original_name"].(string)
	return simcloud.InstanceType{Name: name, CPUs: max(1, number("vcpus")), MemoryMiB: int64(max(512, number("ram"))),
		EphemeralStorageGiB: int64(max(1, number("disk"))), Architecture: "amd64"}
}

// addressOf is the server's first address.
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

// reporter keeps what a guest remembers while it is switched off.
type reporter struct {
	player *Player
	guest  *guest
}

// Save implements host.Reporter.
func (r reporter) Save(d host.Disk) error {
	r.player.mu.Lock()
	defer r.player.mu.Unlock()
	r.guest.disk = d
	return nil
}

// Report implements host.Reporter.
func (reporter) Report(simcloud.HostStatus) {}

// Print implements host.Reporter.
func (reporter) Print(string) {}
