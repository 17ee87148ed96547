package cloud

import (
	"slices"
	"time"

	"machinist.dev/machinist/simcloud"
)

// record is all that is kept of an instance. A record that was committed is
// never changed: changing is making another one. Times are zero where nothing
// is to happen.
type record struct {
	Instance  simcloud.Instance     `json:"instance"`
	TypeSpec  simcloud.InstanceType `json:"type"`
	ImageSpec simcloud.Image        `json:"image"`
	Sequence  int                   `json:"sequence"`
	Account   string                `json:"account"`
	// Parameters is the digest of the request, to recognise it by.
	Parameters string `json:"parameters"`
	PodSlot    int    `json:"podSlot"`
	Boots      int    `json:"boots"`

	// BootAt is when a pending or rebooting instance runs.
	BootAt      time.Time `json:"bootAt,omitzero"`
	TerminateAt time.Time `json:"terminateAt,omitzero"`
	// HideAt is when a terminated instance disappears for its owner, ForgetAt
	// when its client token is free again.
	HideAt   time.Time `json:"hideAt,omitzero"`
	ForgetAt time.Time `json:"forgetAt,omitzero"`
	Hidden   bool      `json:"hidden,omitempty"`
	// FreeAt is when a terminated instance no longer counts against quota and capacity.
	FreeAt time.Time `json:"freeAt,omitzero"`
	// AddressInUse says that the address of a terminated instance waits for its owner to delete it.
	AddressInUse bool `json:"addressKept,omitempty"`

	NeverBoots     bool `json:"neverBoots,omitempty"`
	Silent         bool `json:"silent,omitempty"`
	NeverRegisters bool `json:"neverRegisters,omitempty"`
	// Faults are still to come, the earliest first.
	Faults []simcloud.InstanceFault `json:"faults,omitempty"`
}

// clone makes a record that may be changed, except for what its maps and
// slices hold: those must be replaced.
func (r *record) clone() *record {
	next := *r
	return &next
}

func (r *record) live() bool { return r.Instance.State != simcloud.StateTerminated }

// counts shows whether the instance counts against quota and capacity.
func (r *record) counts() bool { return r.live() || !r.FreeAt.IsZero() }

// hasAddress shows whether nobody else may have the instance's address.
func (r *record) hasAddress() bool { return r.live() || r.AddressInUse }

// switchedOn shows whether the machine inside the instance does anything.
func (r *record) switchedOn() bool {
	return r.Instance.State == simcloud.StateRunning && !r.Silent && !r.NeverRegisters
}

// addFault lets something befall the instance at a time.
func (r *record) addFault(f simcloud.InstanceFault, at time.Time) {
	if earlier := r.Instance.ReclaimTime; f.Kind == simcloud.FaultReclaimed && (earlier == nil || at.Before(*earlier)) {
		r.Instance.ReclaimTime = &at
	}
	f.After = simcloud.Duration(at.Sub(r.Instance.LaunchTime))
	i, _ := slices.BinarySearchFunc(r.Faults, f.After, func(g simcloud.InstanceFault, after simcloud.Duration) int {
		if g.After <= after { // after those of the same time
			return -1
		}
		return 1
	})
	r.Faults = slices.Insert(slices.Clone(r.Faults), i, f)
}

// due is when the record changes next by itself, zero if never.
func (r *record) due() time.Time {
	at, _ := r.next()
	if r.AddressInUse {
		return at
	}
	if at.IsZero() || (!r.ForgetAt.IsZero() && r.ForgetAt.Before(at)) {
		return r.ForgetAt
	}
	return at
}

// forgotten shows whether the record may go.
func (r *record) forgotten(now time.Time) bool {
	return !r.ForgetAt.IsZero() && !r.ForgetAt.After(now) && !r.AddressInUse
}

// advance carries out, in the order of their times, all changes that are due
// by now.
func (r *record) advance(now time.Time, s simcloud.Settings) {
	for {
		at, change := r.next()
		if change == nil || at.After(now) {
			return
		}
		change(at, s)
	}
}

// change is what happens to a record at a time.
type change func(at time.Time, s simcloud.Settings)

// next is the earliest change to come, nil if there is none. Of two at the
// same time, the fault comes first: a rule "never boots" must win against a
// boot time of 0.
func (r *record) next() (at time.Time, what change) {
	consider := func(t time.Time, c change) {
		if !t.IsZero() && (what == nil || t.Before(at)) {
			at, what = t, c
		}
	}
	if len(r.Faults) > 0 {
		consider(r.Instance.LaunchTime.Add(time.Duration(r.Faults[0].After)), r.suffer)
	}
	switch r.Instance.State {
	case simcloud.StatePending, simcloud.StateRebooting:
		if !r.NeverBoots {
			consider(r.BootAt, r.boot)
		}
	case simcloud.StateShuttingDown:
		consider(r.TerminateAt, r.terminate)
	case simcloud.StateTerminated:
		if !r.Hidden {
			consider(r.HideAt, r.hide)
		}
		consider(r.FreeAt, r.free)
	}
	return at, what
}

func (r *record) boot(time.Time, simcloud.Settings) {
	r.Instance.State, r.Instance.StateReason = simcloud.StateRunning, ""
	r.BootAt = time.Time{}
	r.Boots++
}

func (r *record) reboot(at time.Time, s simcloud.Settings) {
	r.Instance.State, r.Instance.StateReason = simcloud.StateRebooting, "restarts to take on an update"
	r.BootAt = at.Add(time.Duration(s.RebootTime))
}

func (r *record) shutDown(at time.Time, s simcloud.Settings) {
	r.Instance.State, r.Instance.StateReason = simcloud.StateShuttingDown, "deleted by its owner"
	r.Instance.StateCode = ""
	r.BootAt = time.Time{}
	r.TerminateAt = at.Add(time.Duration(s.ShutdownTime))
}

func (r *record) terminate(at time.Time, s simcloud.Settings) {
	r.Instance.State, r.Instance.StateCode = simcloud.StateTerminated, ""
	r.Instance.TerminationTime = &at
	r.BootAt, r.TerminateAt, r.Faults = time.Time{}, time.Time{}, nil
	r.HideAt = at.Add(time.Duration(s.TerminatedVisible))
	// Those who read late must still find it while it is visible.
	r.ForgetAt = at.Add(time.Duration(max(s.TokenRetention, s.TerminatedVisible+lagsOf(s).longest(),
		s.Semantics.QuotaLag)))
	if s.Semantics.QuotaLag > 0 {
		r.FreeAt = at.Add(time.Duration(s.Semantics.QuotaLag))
	}
	r.AddressInUse = s.Semantics.KeepAddresses
}

func (r *record) free(time.Time, simcloud.Settings) { r.FreeAt = time.Time{} }

func (r *record) hide(time.Time, simcloud.Settings) { r.Hidden = true }

// suffer lets the next fault act. What makes no sense in the instance's state
// passes without effect.
func (r *record) suffer(at time.Time, s simcloud.Settings) {
	f := r.Faults[0]
	r.Faults = slices.Clone(r.Faults[1:])
	state := r.Instance.State
	if state == simcloud.StateTerminated {
		return
	}
	if f.Kind == simcloud.FaultVanishes || f.Kind == simcloud.FaultReclaimed {
		r.terminate(at, s)
		r.Instance.StateReason = "fault: vanished"
		r.Hidden = true
		return
	}
	if state == simcloud.StateShuttingDown {
		return
	}
	switch f.Kind {
	case simcloud.FaultNeverBoots:
		if state == simcloud.StatePending {
			r.NeverBoots = true
			r.Instance.StateReason = "fault: never boots"
		}
	case simcloud.FaultGivesUp:
		if state == simcloud.StatePending {
			r.Instance.State, r.Instance.StateReason = simcloud.StateFailed, "fault: no capacity for it"
			r.Instance.StateCode = simcloud.CodeInsufficientCapacity
			r.BootAt = time.Time{}
		}
	case simcloud.FaultBootDelay:
		if state == simcloud.StatePending {
			r.BootAt = r.BootAt.Add(time.Duration(f.Delay))
		}
	case simcloud.FaultNeverRegisters:
		r.NeverRegisters = true
	case simcloud.FaultSilent:
		r.Silent = true
	case simcloud.FaultDies:
		r.Instance.State, r.Instance.StateReason = simcloud.StateStopped, "fault: died"
		r.BootAt = time.Time{}
	case simcloud.FaultRecovers:
		if r.NeverBoots || state == simcloud.StateStopped {
			r.Instance.State, r.Instance.StateReason = simcloud.StatePending, ""
			r.BootAt = at.Add(time.Duration(bootTime(r.TypeSpec, s)))
		}
		r.NeverBoots, r.Silent, r.NeverRegisters = false, false, false
	}
}

// bootTime of a type, without jitter.
func bootTime(t simcloud.InstanceType, s simcloud.Settings) simcloud.Duration {
	if t.BootTime != nil {
		return *t.BootTime
	}
	return s.BootTime
}
