package source

import (
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

const (
	sapcloudCreation     = 20 * time.Minute
	sapcloudDrain        = 2 * time.Hour
	sapcloudUpdate       = 20 * time.Minute
	sapcloudVolumeDetach = 2 * time.Minute
)

// sapcloudTrue is the value that activates a label.
const sapcloudTrue = "True"

func (r *sapcloudReader) machine() {
	f := r.fields
	machine := &v1beta1.Machine{}
	spec := f.child("spec")
	// The health check of the deployment or set has these settings. Machines only have copies.
	_ = r.machineSpec(spec, &machine.Spec)
	r.converted.Object = machine
	r.converted.Machine = r.status()
	r.converted.Machine.ProviderID = spec.text("providerID")
	r.readPostponed()
	r.metadata.apply(machine)
}

func (r *sapcloudReader) machineSpec(f *fields, to *v1beta1.MachineSpec) sapcloudHealth {
	class := f.child("class")
	class.ignore("apiGroup") // The old controller accepts no other group.
	r.converted.ClassName = class.text("name")
	if r.converted.ClassName == "" {
		f.report(provider.FindingBlocker, CodeMissingField, "class", "There is no description of the instance: class is "+
			"not set.")
	}
	if kind := class.text("kind"); kind != "" && kind != "MachineClass" {
		class.report(provider.FindingBlocker, CodeOldClassKind, "kind", "The class is a %.63s, not a MachineClass. Let "+
			"the old system replace it with a MachineClass first.", kind)
	}
	r.nodeTemplate(f.child("nodeTemplate"), &to.Node)
	to.Timeouts = r.timeouts(f)
	r.evictRetries(f)
	return r.health(f)
}

func (r *sapcloudReader) nodeTemplate(f *fields, to *v1beta1.NodeTemplate) {
	if r.nodeMeta(f, to) != "" {
		f.report(provider.FindingLoss, CodeNotSupported, "metadata.name", "Machinist finds a Node by its provider ID, "+
			"not by its name.")
	}
	spec := f.child("spec")
	to.Taints = spec.taints(nil)
	spec.reportLoss("Machinist only applies labels, annotations and taints to Nodes.", "podCIDR", "podCIDRs",
		"providerID", "unschedulable", "configSource", "externalID")
}

// timeouts returns the timeouts of a machine. A missing timeout comes from the old system's flags or defaults.
func (r *sapcloudReader) timeouts(f *fields) v1beta1.MachineTimeouts {
	creation := r.timeout(f, "creationTimeout", sapcloudCreationFlag, sapcloudCreation)
	if text := r.metadata.oldAnnotations[sapcloudCreationTimeout]; text != "" {
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			creation = d
		} else {
			r.metadata.report(provider.FindingNote, CodeInvalidValue, "annotations."+sapcloudCreationTimeout, "The value is "+
				"not a duration such as 30m, so it has no effect.")
		}
	}
	update := r.timeout(f, "inPlaceUpdateTimeout", sapcloudUpdateFlag, sapcloudUpdate)
	for _, t := range []struct {
		name  string
		value time.Duration
	}{{"creationTimeout", creation}, {"inPlaceUpdateTimeout", update}} {
		if t.value == 0 {
			f.report(provider.FindingBlocker, CodeInvalidValue, t.name, "The timeout must be longer than 0s, here or in the "+
				"flag of the old process.")
		}
	}
	return v1beta1.MachineTimeouts{
		Creation:     asDuration(creation),
		Update:       asDuration(update),
		Drain:        asDuration(r.timeout(f, "drainTimeout", sapcloudDrainFlag, sapcloudDrain)),
		VolumeDetach: asDuration(valueOr(r.flags.duration(sapcloudDetachFlag, r.fields), sapcloudVolumeDetach)),
	}
}

// timeout returns one timeout. A negative timeout is a Blocker.
func (r *sapcloudReader) timeout(f *fields, name, flag string, fallback time.Duration) time.Duration {
	d := valueOr(r.flags.duration(flag, r.fields), fallback)
	own := valueOr(f.duration(name), d)
	if own < 0 {
		f.report(provider.FindingBlocker, CodeInvalidValue, name, "The timeout must not be negative.")
		return d
	}
	return own
}

// evictRetries reports a loss if the old system limits how often it tries to evict a pod. Machinist has no such limit:
// it only limits the time of a drain.
func (r *sapcloudReader) evictRetries(f *fields) {
	const name = "maxEvictRetries"
	if f.number(name) != nil || r.flags[sapcloudRetriesFlag] != "" {
		f.report(provider.FindingLoss, CodeNotSupported, name, "Machinist tries to evict a pod until timeouts.drain is "+
			"over, without a limit of retries. The old limit is set here or in the flag %s of the old process.",
			sapcloudRetriesFlag)
	}
}

func (r *sapcloudReader) status() *Machine {
	status := r.fields.observe("status")
	operation, current := status.observe("lastOperation"), status.observe("currentStatus")
	phase := current.text("phase")
	machine := &Machine{
		NodeName: r.metadata.oldLabels[sapcloudNode],
		Deleting: r.metadata.deletionRequested,
		Failed:   phase == "Failed" || phase == "InPlaceUpdateFailed",
		Updating: phase == "InPlaceUpdating" || phase == "InPlaceUpdateSuccessful" ||
			operation.text("type") == "InPlaceUpdate" && operation.text("state") == "Processing",
	}
	if _, selected := r.metadata.oldLabels[sapcloudSelected]; selected && !machine.Failed {
		machine.Updating = true
	}
	if r.metadata.controller != nil {
		machine.Owner = r.metadata.controller.UID
	}
	return machine
}
