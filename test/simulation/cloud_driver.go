package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"machinist.dev/machinist/pkg/provider"
)

type driver struct {
	process *Process
	*Cloud
}

func (d driver) do(verb string, m provider.Machine, reads bool, f func(late bool) error) error {
	e := Effect{Verb: verb, Kind: "instance of", Name: m.Namespace + "/" + m.Name, Cloud: true, Reads: reads}
	if !reads {
		d.process.world.oracle.mayCall(d.process, verb, e.Name)
	}
	err := d.process.do(e, func(late bool) error {
		d.calls++
		if err := d.refuses(); err != nil {
			return err
		}
		if reads {
			return f(late)
		}
		d.changeCount++
		lost, later := d.drawMishap()
		if err := f(late || later); err != nil || !lost && !later {
			return err
		}
		return errNoAnswer
	})
	if errors.Is(err, errNoAnswer) {
		return provider.Errorf(provider.DeadlineExceeded, "no answer")
	}
	return err
}

// Name implements provider.Driver.
func (d driver) Name() string { return providerName }

// CreateSettle implements provider.Settler.
func (d driver) CreateSettle() time.Duration { return d.Settle }

// Validate implements provider.Driver.
func (d driver) Validate(context.Context, provider.ValidateRequest) error { return nil }

// Capacity implements provider.Driver.
func (d driver) Capacity(_ context.Context, req provider.CapacityRequest) (provider.Capacity, error) {
	// The capacity depends on the image of the class, so a rollout changes it.
	cpus := int64(len(req.Class.Spec)%4) + 1
	for i, name := range []string{"a", "b", "c"} {
		if strings.Contains(string(req.Class.Spec), fmt.Sprintf("%q:%q", "image", name)) {
			cpus = int64(i) + 1
		}
	}
	place := placeOf(req.Class.Spec)
	region, zone := "", ""
	if slices.Contains(zones, place.Zone) {
		region, zone = "r", place.Zone
	}
	return provider.Capacity{InstanceType: place.Type, Region: region, Zone: zone, Architecture: "amd64", Resources: corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(cpus, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(cpus<<32, resource.BinarySI),
	}}, nil
}

// Create implements provider.Driver.
func (d driver) Create(_ context.Context, req provider.CreateRequest) (out *provider.Instance, err error) {
	err = d.do("create", req.Machine, false, func(late bool) error {
		d.process.world.oracle.mayAskFor(d.process, req)
		if late {
			d.late = append(d.late, lateCreate{d.now().Add(d.Settle / 2), req, d.now().Add(d.Settle * 7 / 8)})
			return nil
		}
		var err error
		// A former leader ends at the latest when the time Settle has passed after the election of its successor. So
		// its requests must take effect within this time.
		shown := d.now().Add(d.Settle)
		if d.process.isFormer {
			shown = d.process.deposedAt.Add(d.Settle)
		}
		made := d.serial
		out, err = d.create(req, d.now(), shown)
		d.noteRequest(req.Class.Spec, err)
		d.process.world.oracle.mayRequest(req)
		if d.serial > made {
			d.process.world.failNew(d.instances[len(d.instances)-1])
		}
		if w := d.process.world; provider.CodeOf(err) == provider.ResourceExhausted {
			w.disturbed, w.stepsAtFault = w.clock.at, w.steps // The next attempt may be minutes away.
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if in := d.byID(out.ProviderID); in != nil {
		in.isReported = true
	}
	return out, nil
}

// Get implements provider.Driver.
func (d driver) Get(_ context.Context, req provider.GetRequest) (out *provider.Instance, err error) {
	err = d.do("get", req.Machine, true, func(bool) error {
		in, err := d.find(req.ProviderID, req.CreateHandle, req.Scope, req.ClusterID, req.Machine.UID)
		if err == nil && req.ProviderID != "" && d.isHidden(in) && in.isOdd() {
			return provider.Errorf(provider.NotFound, "no instance %s", req.ProviderID)
		}
		if err == nil {
			d.process.world.noteRead(in)
			if out = d.visibleInstance(in); out == nil {
				return provider.Errorf(provider.NotFound, "no instance %s", req.ProviderID)
			}
			return nil
		}
		if stale := d.ghostOf(staleFor, asked(req.ProviderID, req.Machine.UID)); d.past.has(ReadsStale) && stale != nil {
			out = stale.describe()
			return nil
		}
		if old := d.returnedOf(req.Machine.UID); req.ProviderID == "" && old != nil {
			out = old.describe()
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Delete implements provider.Driver.
func (d driver) Delete(_ context.Context, req provider.DeleteRequest) (out provider.DeleteResult, err error) {
	err = d.do("delete", req.Machine, false, func(late bool) error {
		if err := d.refusesDelete(req.Machine); err != nil {
			return err
		}
		in, err := d.find(req.ProviderID, req.CreateHandle, req.Scope, req.ClusterID, req.Machine.UID)
		if provider.IsNotFound(err) || err == nil && d.past.has(ReadsLate) && in.visible.After(d.now()) {
			// A driver reads the instance before deleting it. So the driver knows only the state that this read has
			// returned.
			stale := d.past.has(ReadsStale) && d.ghostOf(staleFor, asked(req.ProviderID, req.Machine.UID)) != nil
			out.Gone = !stale && !d.leftOf(req)
			return nil
		}
		if err != nil {
			return err
		}
		if d.past.has(TagsLate) && in.visible.After(d.now()) {
			return provider.Errorf(provider.FailedPrecondition, "instance %s has no tags", in.ProviderID)
		}
		if late && d.past.has(DoneLate) {
			d.past.removals = append(d.past.removals, removal{d.now().Add(deletedLate), req})
			return nil
		}
		d.process.world.oracle.mayTakeDown(in, req.Machine)
		if err := in.OwnedBy(req.ClusterID, req.Machine); err != nil {
			return err
		}
		if in.dying.IsZero() {
			in.State, in.dying = provider.StateTerminating, d.now()
		}
		if d.Shutdown == 0 {
			d.instances = slices.DeleteFunc(d.instances, func(other *instance) bool { return other == in })
			d.keepGhost(in)
			out.Gone, out.Found = !d.leftOf(req), true
		}
		return nil
	})
	if err != nil {
		d.noteRefused(req.Machine, err)
		return provider.DeleteResult{}, err
	}
	return out, nil
}

// Update implements provider.Driver. The cloud or an agent can change only the version in place.
func (d driver) Update(_ context.Context, req provider.UpdateRequest) (out provider.UpdateResult, err error) {
	err = d.do("update", req.Machine, false, func(bool) error {
		in, err := d.find(req.ProviderID, req.CreateHandle, req.Scope, req.ClusterID, req.Machine.UID)
		if err != nil {
			return err
		}
		if err := in.OwnedBy(req.ClusterID, req.Machine); err != nil {
			return err
		}
		switch {
		case in.spec != string(req.Class.Spec):
			out = provider.UpdateResult{Outcome: provider.UpdateNeedsReplacement, Reason: "another image"}
		case in.kubelet != "":
			// The driver knows the version at the creation of the instance. The Node contains the current version.
			if out.Outcome = provider.UpdateDone; cmp.Or(req.NodeVersion, in.version) != req.Version {
				out.Outcome = provider.UpdateByAgent
			}
		case in.version != req.Version && !req.NodeDrained:
			out.Outcome = provider.UpdateNeedsDrain
		default:
			d.process.world.oracle.mayDisturb(in, req.Machine.UID, in.version != req.Version)
			in.version = req.Version
			out.Outcome = provider.UpdateDone
		}
		return nil
	})
	if err != nil {
		return provider.UpdateResult{}, err
	}
	return out, nil
}

// List implements provider.Driver.
func (d driver) List(_ context.Context, req provider.ListRequest) (out provider.ListPage, err error) {
	err = d.do("list", provider.Machine{}, true, func(bool) error {
		var shown []*instance
		// If another tool leaks instances, the response contains more instances than requested.
		asked := func(in *instance) bool {
			return in.ClusterID == req.ClusterID || len(d.process.world.safety.strangers) > 0
		}
		for _, in := range d.instances {
			if asked(in) && !in.visible.After(d.now()) && !d.isHidden(in) && !d.troubles.forgets {
				d.process.world.listed(in)
				shown = append(shown, in)
			}
		}
		out.Instances, out.Leftovers = d.listing(shown, asked), d.unattachedParts(req.ClusterID)
		if repeated := d.past.has(ListsRepeat) && len(out.Instances) > 0; repeated && req.Continue == "" {
			out.Continue, out.Leftovers = "again", nil
		} else if repeated {
			slices.Reverse(out.Instances)
		}
		return nil
	})
	if err != nil {
		return provider.ListPage{}, err
	}
	return out, nil
}
