package cloud

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"time"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/host"
	"machinist.dev/machinist/simcloud/journal"
)

// maxConsoleBytes is how much of a console is kept.
const maxConsoleBytes = 16 << 10

// machine is the inside of an instance, as far as the cloud knows it.
type machine struct {
	saved  saved
	status simcloud.HostStatus
	// power is the running machine's line to the cloud, nil when it is off.
	power *power
}

// saved is what of a machine outlives the process.
type saved struct {
	Disk    host.Disk `json:"disk"`
	Console string    `json:"console,omitempty"`
}

// print adds a line to the console, and drops the oldest when it is full.
func (s *saved) print(now time.Time, line string) {
	line = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, line)
	s.Console += now.Format("2006-01-02T15:04:05.000Z ") + line + "\n"
	if len(s.Console) > maxConsoleBytes {
		cut := []byte(s.Console[len(s.Console)-maxConsoleBytes:])
		_, cut, _ = bytes.Cut(cut, []byte("\n"))
		s.Console = string(cut)
	}
}

// operate switches an instance's machine on, off, or off and on, as its record
// demands.
func (c *Cloud) operate(inst *instance, old *record) {
	rec := inst.rec
	id := rec.Instance.ID
	m := &inst.machine
	changed := old.Boots != rec.Boots || old.TypeSpec.Name != rec.TypeSpec.Name ||
		old.ImageSpec.Name != rec.ImageSpec.Name || old.Instance.KubeletVersion != rec.Instance.KubeletVersion
	if m.power != nil && (changed || !rec.switchedOn()) {
		m.power = nil
		m.saved.print(c.now(), "machine stops")
		c.hosts.Stop(id)
	}
	if m.power != nil || !rec.switchedOn() {
		return
	}
	var userData []byte
	if _, err := c.journal.Get(keyUserData+id, &userData); err != nil {
		// The machine starts and says that it has no user data.
		c.log.Error("user data of an instance cannot be read", "instance", id, "error", err)
	}
	m.saved.print(c.now(), "machine starts")
	m.status = simcloud.HostStatus{Phase: simcloud.HostJoining, Message: "starting"}
	m.power = &power{cloud: c, inst: inst}
	address, _ := netip.ParseAddr(rec.Instance.PrivateIPs[0]) // our own
	c.hosts.Start(host.Spec{
		ID: id, ProviderID: rec.Instance.ProviderID, Hostname: rec.Instance.Hostname,
		Region: rec.Instance.Region, Zone: rec.Instance.Zone, Type: rec.TypeSpec, Image: rec.ImageSpec,
		KubeletVersion: rec.Instance.KubeletVersion, Address: address, PodNet: slotPodNet(rec.PodSlot),
		UserData: userData, Boots: rec.Boots, Settings: c.settings.Host, Disk: m.saved.Disk,
	}, m.power)
}

// hostStatus is what the machine says of itself, or what is said in its place
// while it is off.
func (inst *instance) hostStatus() simcloud.HostStatus {
	switch rec := inst.rec; {
	case inst.machine.power != nil:
		return inst.machine.status
	case rec.Silent:
		return simcloud.HostStatus{Phase: simcloud.HostOff, Message: "fault: silent"}
	case rec.NeverRegisters:
		return simcloud.HostStatus{Phase: simcloud.HostIdle, Message: "fault: never registers"}
	}
	return simcloud.HostStatus{Phase: simcloud.HostOff}
}

// power is the line of one switched-on machine to the cloud. What a machine
// says that has been switched off since is not heard.
type power struct {
	cloud *Cloud
	inst  *instance
}

var errOff = errors.New("machine is switched off")

// report changes what is known of the machine, and makes it durable if asked to.
func (p *power) report(durable bool, do func(m *machine)) error {
	c := p.cloud
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &p.inst.machine
	if m.power != p {
		return errOff
	}
	do(m)
	if !durable {
		return nil
	}
	return c.journal.Commit(journal.Op{Key: keyMachine + p.inst.rec.Instance.ID, Value: m.saved})
}

// Save implements host.Reporter.
func (p *power) Save(disk host.Disk) error {
	return p.report(true, func(m *machine) { m.saved.Disk = disk })
}

// Report implements host.Reporter. It is an occasion to save the console.
func (p *power) Report(status simcloud.HostStatus) {
	err := p.report(true, func(m *machine) { m.status = status })
	if err != nil && !errors.Is(err, errOff) {
		p.cloud.log.Error("console cannot be saved", "error", err)
	}
}

// Print implements host.Reporter.
func (p *power) Print(line string) {
	_ = p.report(false, func(m *machine) { m.saved.print(p.cloud.now(), line) })
}

// Console is what the machine wrote on its serial console.
func (c *Cloud) Console(accountName, id string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	inst := c.instances[id]
	if inst == nil || inst.rec.Account != accountName || inst.rec.Hidden {
		return "", failNoInstance(id)
	}
	return inst.machine.saved.Console, nil
}
