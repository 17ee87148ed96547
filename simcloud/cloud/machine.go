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

const maxConsoleBytes = 16 << 10

// machine contains what the cloud knows about the simulated machine that runs in an instance.
type machine struct {
	saved  savedMachine
	status simcloud.HostStatus
	// reporter receives the reports of the running machine. It is nil while the machine is off.
	reporter *reporter
}

// savedMachine is the state of a machine that survives restarts of the process.
type savedMachine struct {
	Disk    host.Disk `json:"disk"`
	Console string    `json:"console,omitempty"`
}

// print adds a line to the console and drops the oldest lines if necessary.
func (s *savedMachine) print(now time.Time, line string) {
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

// switchMachine switches the machine on or off, or restarts it, as the new record requires.
func (c *Cloud) switchMachine(inst *instance, old *record) {
	rec := inst.rec
	id := rec.Instance.ID
	m := &inst.machine
	changed := old.Boots != rec.Boots || old.TypeSpec.Name != rec.TypeSpec.Name ||
		old.ImageSpec.Name != rec.ImageSpec.Name || old.Instance.KubeletVersion != rec.Instance.KubeletVersion
	if m.reporter != nil && (changed || !rec.switchedOn()) {
		m.reporter = nil
		m.saved.print(c.now(), "machine stops")
		c.hosts.Stop(id)
	}
	if m.reporter != nil || !rec.switchedOn() {
		return
	}
	var userData []byte
	if _, err := c.journal.Get(keyUserData+id, &userData); err != nil {
		// Start the machine nevertheless: it reports missing user data itself.
		c.log.Error("cannot read the user data of an instance", "instance", id, "error", err)
	}
	m.saved.print(c.now(), "machine starts")
	m.status = simcloud.HostStatus{Phase: simcloud.HostJoining, Message: "starting"}
	m.reporter = &reporter{cloud: c, inst: inst}
	address, _ := netip.ParseAddr(rec.Instance.PrivateIPs[0]) // The cloud itself formatted the address.
	c.hosts.Start(host.Spec{
		ID: id, ProviderID: rec.Instance.ProviderID, Hostname: rec.Instance.Hostname,
		Region: rec.Instance.Region, Zone: rec.Instance.Zone, Type: rec.TypeSpec, Image: rec.ImageSpec,
		KubeletVersion: rec.Instance.KubeletVersion, Address: address, PodNet: slotPodNet(rec.PodSlot),
		UserData: userData, Boots: rec.Boots, Settings: c.settings.Host, Disk: m.saved.Disk,
	}, m.reporter)
}

// hostStatus returns the last reported status, or the status of a switched-off machine.
func (inst *instance) hostStatus() simcloud.HostStatus {
	switch rec := inst.rec; {
	case inst.machine.reporter != nil:
		return inst.machine.status
	case rec.Silent:
		return simcloud.HostStatus{Phase: simcloud.HostOff, Message: "fault: silent"}
	case rec.Hung:
		return simcloud.HostStatus{Phase: simcloud.HostOff, Message: "fault: hangs"}
	case rec.NeverRegisters:
		return simcloud.HostStatus{Phase: simcloud.HostIdle, Message: "fault: never registers"}
	}
	return simcloud.HostStatus{Phase: simcloud.HostOff}
}

// reporter receives the reports of one run of a machine. Reports that arrive after the end of this run are ignored.
type reporter struct {
	cloud *Cloud
	inst  *instance
}

var errOff = errors.New("the machine is switched off")

// report changes the state of the machine. If durable is true, report also saves the state in the journal.
func (p *reporter) report(durable bool, do func(m *machine)) error {
	c := p.cloud
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &p.inst.machine
	if m.reporter != p {
		return errOff
	}
	do(m)
	if !durable {
		return nil
	}
	return c.journal.Commit(journal.Op{Key: keyMachine + p.inst.rec.Instance.ID, Value: m.saved})
}

// Save implements host.Reporter.
func (p *reporter) Save(disk host.Disk) error {
	return p.report(true, func(m *machine) { m.saved.Disk = disk })
}

// Report implements host.Reporter and also saves the console.
func (p *reporter) Report(status simcloud.HostStatus) {
	err := p.report(true, func(m *machine) { m.status = status })
	if err != nil && !errors.Is(err, errOff) {
		p.cloud.log.Error("cannot save the console of an instance", "error", err)
	}
}

// Print implements host.Reporter.
func (p *reporter) Print(line string) {
	_ = p.report(false, func(m *machine) { m.saved.print(p.cloud.now(), line) })
}

// Console returns the output of a machine on its serial console.
func (c *Cloud) Console(accountName, id string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	inst := c.instances[id]
	if inst == nil || inst.rec.Account != accountName || inst.rec.Hidden {
		return "", failNoInstance(id)
	}
	return inst.machine.saved.Console, nil
}
