package cloud

import (
	"slices"
	"time"

	"machinist.dev/machinist/simcloud"
)

// record is the saved state of an instance. Committed records are immutable: each change commits a new record. A zero
// time means that the event is not planned.
type record struct {
	Instance  simcloud.Instance     `json:"instance"`
	TypeSpec  simcloud.InstanceType `json:"type"`
	ImageSpec simcloud.Image        `json:"image"`
	Sequence  int                   `json:"sequence"`
	Account   string                `json:"account"`
	// Parameters is a digest of the parameters of the create request.
	Parameters string `json:"parameters"`
	PodSlot    int    `json:"podSlot"`
	Boots      int    `json:"boots"`

	// BootAt is when a pending, starting or rebooting instance becomes running.
	BootAt time.Time `json:"bootAt,omitzero"`
	// StopAt is when a stopping instance becomes stopped, or running if its operating system ignores the request.
	StopAt time.Time `json:"stopAt,omitzero"`
	// StopRequest is the last request to switch the instance off. It is zero while the instance is on.
	StopRequest simcloud.StopInstanceRequest `json:"stopRequest,omitzero"`
	TerminateAt time.Time                    `json:"terminateAt,omitzero"`
	// HideAt is when a terminated instance becomes unreadable for its owner. ForgetAt is when the record is deleted and
	// its client token becomes free.
	HideAt   time.Time `json:"hideAt,omitzero"`
	ForgetAt time.Time `json:"forgetAt,omitzero"`
	Hidden   bool      `json:"hidden,omitempty"`
	// FreeAt is when a terminated instance stops counting against quota and capacity.
	FreeAt time.Time `json:"freeAt,omitzero"`
	// AddressInUse means that the instance is terminated but its address still exists.
	AddressInUse bool `json:"addressKept,omitempty"`

	NeverBoots     bool `json:"neverBoots,omitempty"`
	Silent         bool `json:"silent,omitempty"`
	NeverRegisters bool `json:"neverRegisters,omitempty"`
	// Hung means that the machine does nothing until it boots again.
	Hung bool `json:"hung,omitempty"`
	// IgnoresShutdown means that the operating system ignores a request without Force.
	IgnoresShutdown bool `json:"ignoresShutdown,omitempty"`
	// Faults are the pending faults, ordered by time.
	Faults []simcloud.InstanceFault `json:"faults,omitempty"`
}

// clone returns a copy for modification. The caller must replace its maps and slices instead of modifying them.
func (r *record) clone() *record {
	next := *r
	return &next
}

func (r *record) live() bool { return r.Instance.State != simcloud.StateTerminated }

// usesQuota reports whether the instance counts against quota and capacity.
func (r *record) usesQuota() bool { return r.live() || !r.FreeAt.IsZero() }

// usesCapacity reports whether the instance counts against capacity.
func (r *record) usesCapacity() bool {
	return r.usesQuota() && !(r.Instance.State == simcloud.StateStopped && r.StopRequest.ReleaseCapacity)
}

func (r *record) hasAddress() bool { return r.live() || r.AddressInUse }

func (r *record) switchedOn() bool {
	on := r.Instance.State == simcloud.StateRunning || r.Instance.State == simcloud.StateStopping
	return on && !r.Silent && !r.Hung && !r.NeverRegisters
}

func (r *record) addFault(f simcloud.InstanceFault, at time.Time) {
	if earlier := r.Instance.ReclaimTime; f.Kind == simcloud.FaultReclaimed && (earlier == nil || at.Before(*earlier)) {
		r.Instance.ReclaimTime = &at
	}
	f.After = simcloud.Duration(at.Sub(r.Instance.LaunchTime))
	i, _ := slices.BinarySearchFunc(r.Faults, f.After, func(g simcloud.InstanceFault, after simcloud.Duration) int {
		if g.After <= after { // Insert the fault after other faults at the same time.
			return -1
		}
		return 1
	})
	r.Faults = slices.Insert(slices.Clone(r.Faults), i, f)
}

// nextChangeTime returns the time of the next planned change, or zero.
func (r *record) nextChangeTime() time.Time {
	at, _ := r.next()
	if r.AddressInUse {
		return at
	}
	if at.IsZero() || (!r.ForgetAt.IsZero() && r.ForgetAt.Before(at)) {
		return r.ForgetAt
	}
	return at
}

// isForgotten reports whether the retention of the record is over.
func (r *record) isForgotten(now time.Time) bool {
	return !r.ForgetAt.IsZero() && !r.ForgetAt.After(now) && !r.AddressInUse
}

// advance applies all due changes in the order of their times.
func (r *record) advance(now time.Time, s simcloud.Settings) {
	for {
		at, change := r.next()
		if change == nil || at.After(now) {
			return
		}
		change(at, s)
	}
}

type change func(at time.Time, s simcloud.Settings)

// next returns the next planned change and its time, or nil. If a fault and another change are planned for the same
// time, next returns the fault. So FaultNeverBoots takes effect even if the boot time is 0.
func (r *record) next() (at time.Time, what change) {
	consider := func(t time.Time, c change) {
		if !t.IsZero() && (what == nil || t.Before(at)) {
			at, what = t, c
		}
	}
	if len(r.Faults) > 0 {
		consider(r.Instance.LaunchTime.Add(time.Duration(r.Faults[0].After)), r.applyFault)
	}
	switch r.Instance.State {
	case simcloud.StatePending, simcloud.StateStarting, simcloud.StateRebooting:
		if !r.NeverBoots {
			consider(r.BootAt, r.boot)
		}
	case simcloud.StateStopping:
		consider(r.StopAt, r.endStop)
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
	r.BootAt, r.Hung = time.Time{}, false
	r.Boots++
}

func (r *record) reboot(at time.Time, s simcloud.Settings) {
	r.Instance.State, r.Instance.StateReason = simcloud.StateRebooting, "restarts to apply an update"
	r.BootAt = at.Add(time.Duration(s.RebootTime))
}

// stop starts to switch the instance off. A request with Force replaces an earlier request without Force.
func (r *record) stop(at time.Time, req simcloud.StopInstanceRequest, s simcloud.Settings) {
	if r.Instance.State != simcloud.StateStopping || req.Force && !r.StopRequest.Force {
		r.StopAt = at.Add(time.Duration(s.StopTime))
	}
	r.Instance.State, r.Instance.StateReason = simcloud.StateStopping, "switched off by its owner"
	r.BootAt = time.Time{}
	req.Force = req.Force || r.StopRequest.Force
	r.StopRequest = req
}

func (r *record) endStop(time.Time, simcloud.Settings) {
	r.StopAt = time.Time{}
	r.Instance.State = simcloud.StateStopped
	if (r.IgnoresShutdown || r.Hung) && !r.StopRequest.Force {
		r.Instance.State, r.Instance.StateReason = simcloud.StateRunning, "fault: ignored the request to shut down"
		r.StopRequest = simcloud.StopInstanceRequest{}
	}
}

func (r *record) start(at time.Time, s simcloud.Settings) {
	r.Instance.State, r.Instance.StateReason = simcloud.StateStarting, "switched on by its owner"
	r.StopRequest = simcloud.StopInstanceRequest{}
	r.BootAt = at.Add(time.Duration(bootTime(r.TypeSpec, s)))
}

func (r *record) shutDown(at time.Time, s simcloud.Settings) {
	r.Instance.State, r.Instance.StateReason = simcloud.StateShuttingDown, "deleted by its owner"
	r.Instance.StateCode = ""
	r.BootAt, r.StopAt = time.Time{}, time.Time{}
	r.TerminateAt = at.Add(time.Duration(s.ShutdownTime))
}

func (r *record) terminate(at time.Time, s simcloud.Settings) {
	r.Instance.State, r.Instance.StateCode = simcloud.StateTerminated, ""
	r.Instance.TerminationTime = &at
	r.BootAt, r.StopAt, r.TerminateAt, r.Faults = time.Time{}, time.Time{}, time.Time{}, nil
	r.HideAt = at.Add(time.Duration(s.TerminatedVisible))
	// Keep the record until even lagging reads no longer show the instance.
	r.ForgetAt = at.Add(time.Duration(max(s.TokenRetention, s.TerminatedVisible+lagsOf(s).longest(),
		s.Semantics.QuotaLag)))
	if s.Semantics.QuotaLag > 0 {
		r.FreeAt = at.Add(time.Duration(s.Semantics.QuotaLag))
	}
	r.AddressInUse = s.Semantics.KeepAddresses
}

func (r *record) free(time.Time, simcloud.Settings) { r.FreeAt = time.Time{} }

func (r *record) hide(time.Time, simcloud.Settings) { r.Hidden = true }

// applyFault applies the next fault. Faults that do not fit the state of the instance have no effect.
func (r *record) applyFault(at time.Time, s simcloud.Settings) {
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
		if state == simcloud.StatePending || state == simcloud.StateStarting {
			r.NeverBoots = true
			r.Instance.StateReason = "fault: never boots"
		}
	case simcloud.FaultGivesUp:
		if state == simcloud.StatePending {
			r.Instance.State, r.Instance.StateReason = simcloud.StateFailed, "fault: no capacity for the instance"
			r.Instance.StateCode = simcloud.CodeInsufficientCapacity
			r.BootAt = time.Time{}
		}
	case simcloud.FaultBootDelay:
		if state == simcloud.StatePending || state == simcloud.StateStarting {
			r.BootAt = r.BootAt.Add(time.Duration(f.Delay))
		}
	case simcloud.FaultNeverRegisters:
		r.NeverRegisters = true
	case simcloud.FaultSilent:
		r.Silent = true
	case simcloud.FaultHangs:
		r.Hung = state == simcloud.StateRunning
	case simcloud.FaultIgnoresShutdown:
		r.IgnoresShutdown = true
	case simcloud.FaultDies:
		r.Instance.State, r.Instance.StateReason = simcloud.StateStopped, "fault: died"
		r.BootAt, r.StopAt, r.StopRequest = time.Time{}, time.Time{}, simcloud.StopInstanceRequest{}
	case simcloud.FaultRecovers:
		switch {
		case state == simcloud.StateStarting && r.NeverBoots:
			r.start(at, s)
		case r.NeverBoots || state == simcloud.StateStopped:
			r.Instance.State, r.Instance.StateReason = simcloud.StatePending, ""
			r.StopRequest = simcloud.StopInstanceRequest{}
			r.BootAt = at.Add(time.Duration(bootTime(r.TypeSpec, s)))
		}
		r.NeverBoots, r.Silent, r.Hung, r.NeverRegisters, r.IgnoresShutdown = false, false, false, false, false
	}
}

func bootTime(t simcloud.InstanceType, s simcloud.Settings) simcloud.Duration {
	if t.BootTime != nil {
		return *t.BootTime
	}
	return s.BootTime
}
