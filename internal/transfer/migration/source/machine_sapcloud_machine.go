package source

import (
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// Timeouts of the old system where neither a Machine nor a flag sets them.
const (
	sapcloudCreation     = 20 * time.Minute
	sapcloudDrain        = 2 * time.Hour
	sapcloudUpdate       = 20 * time.Minute
	sapcloudVolumeDetach = 2 * time.Minute
)

// sapcloudTrue is the value of its labels that are on.
const sapcloudTrue = "True"

func (r *sapcloudReader) machine() {
	f := r.fields
	machine := &v1beta1.Machine{}
	spec := f.child("spec")
	// Health is judged by the check of the deployment or set: a machine's own settings are copies of the template's.
	_ = r.machineSpec(spec, &machine.Spec)
	r.converted.Object = machine
	r.converted.Machine = r.status()
	r.converted.Machine.ProviderID = spec.text("providerID")
	r.later()
	r.metadata.apply(machine)
}

// machineSpec reads the specification of a machine or of a template of machines.
func (r *sapcloudReader) machineSpec(f *fields, to *v1beta1.MachineSpec) sapcloudHealth {
	class := f.child("class")
	class.ignore("apiGroup") // The old controller takes no other.
	r.converted.ClassName = class.text("name")
	if r.converted.ClassName == "" {
		f.find(provider.FindingBlocker, CodeMissingField, "class", "The instance is not described: there is no class.")
	}
	if kind := class.text("kind"); kind != "" && kind != "MachineClass" {
		class.find(provider.FindingBlocker, CodeOldClassKind, "kind", "The class is a %.63s, not a MachineClass. Let the "+
			"old system replace it by one first.", kind)
	}
	r.nodeTemplate(f.child("nodeTemplate"), &to.Node)
	to.Timeouts = r.timeouts(f)
	r.evictRetries(f)
	return r.health(f)
}

// nodeTemplate reads what the old system applies to a Node.
func (r *sapcloudReader) nodeTemplate(f *fields, to *v1beta1.NodeTemplate) {
	if r.nodeMeta(f, to) != "" {
		f.find(provider.FindingLoss, CodeNotSupported, "metadata.name", "Machinist finds a Node by its provider ID, "+
			"whatever its name.")
	}
	spec := f.child("spec")
	to.Taints = spec.taints("taints")
	spec.loses("Machinist applies labels, annotations and taints to Nodes, nothing else.", "podCIDR", "podCIDRs",
		"providerID", "unschedulable", "configSource", "externalID")
}

// timeouts returns the timeouts of a machine: its own, else those of flags, else the old system's defaults.
func (r *sapcloudReader) timeouts(f *fields) v1beta1.MachineTimeouts {
	creation := r.timeout(f, "creationTimeout", "machine-creation-timeout", sapcloudCreation)
	if text := r.metadata.oldAnnotations[sapcloudCreationTimeout]; text != "" {
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			creation = d
		} else {
			r.metadata.find(provider.FindingNote, CodeInvalidValue, "annotations."+sapcloudCreationTimeout, "It is no "+
				"duration such as 30m, so it does not count.")
		}
	}
	update := r.timeout(f, "inPlaceUpdateTimeout", "machine-inplace-update-timeout", sapcloudUpdate)
	for _, t := range []struct {
		name  string
		value time.Duration
	}{{"creationTimeout", creation}, {"inPlaceUpdateTimeout", update}} {
		if t.value == 0 {
			f.find(provider.FindingBlocker, CodeInvalidValue, t.name, "It must be longer than 0s, here or in the flag of the "+
				"old process.")
		}
	}
	return v1beta1.MachineTimeouts{
		Creation:     asDuration(creation),
		Update:       asDuration(update),
		Drain:        asDuration(r.timeout(f, "drainTimeout", "machine-drain-timeout", sapcloudDrain)),
		VolumeDetach: asDuration(or(r.flags.duration("machine-pv-detach-timeout", r.fields), sapcloudVolumeDetach)),
	}
}

// timeout returns one timeout, which is not negative.
func (r *sapcloudReader) timeout(f *fields, name, flag string, fallback time.Duration) time.Duration {
	d := or(r.flags.duration(flag, r.fields), fallback)
	own := or(f.duration(name), d)
	if own < 0 {
		f.find(provider.FindingBlocker, CodeInvalidValue, name, "It must not be negative.")
		return d
	}
	return own
}

// evictRetries reports a bound on evictions: Machinist's drain has a time only.
func (r *sapcloudReader) evictRetries(f *fields) {
	const name, flag = "maxEvictRetries", "machine-max-evict-retries"
	if f.number(name) != nil || r.flags[flag] != "" {
		f.find(provider.FindingLoss, CodeNotSupported, name, "Machinist evicts a pod until timeouts.drain is over, however "+
			"often (here, or the flag %s of the old process).", flag)
	}
}

// status reads the state of a machine.
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
