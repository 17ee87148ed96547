package source

import (
	"strconv"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// CodePreserve: Machinist preserves machines in a different way.
const CodePreserve = "Preserve"

// readPostponed converts the labels, annotations and status fields that affect what controllers do with a machine. The
// converted annotations are added to the new Machine after the old system has been removed.
func (r *sapcloudReader) readPostponed() {
	if r.metadata.oldLabels[sapcloudForceDeletion] == sapcloudTrue {
		r.metadata.later[v1beta1.AnnotationForceDelete] = "true"
	}
	r.readPriority()
	r.readPreservation()
}

// readPriority reads the annotation that decides which machines are deleted first. If the autoscaler has selected a
// machine, the machine has the priority 1 and the annotation with a time. Such a machine gets Machinist's delete mark.
func (r *sapcloudReader) readPriority() {
	text := r.metadata.oldAnnotations[sapcloudPriority]
	if text == "" {
		return
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		r.metadata.report(provider.FindingNote, CodeInvalidValue, "annotations."+sapcloudPriority, "The value is not a "+
			"number, so the old controller ignored it.")
		return
	}
	switch {
	case n == 1 && r.metadata.oldAnnotations[sapcloudMarkTime] != "":
		r.metadata.later[v1beta1.AnnotationDeleteMachine] = "true"
	case n != v1beta1.DefaultDeletePriority: // same default as in the old system
		r.metadata.later[v1beta1.AnnotationDeletePriority] = text
	}
}

// readPreservation reads whether the old system preserves a machine now, or will preserve the machine after a failure.
// If only the Node has the annotation, the status of the machine shows the preservation.
func (r *sapcloudReader) readPreservation() {
	const expiry = "status.currentStatus.preserveExpiryTime"
	until := r.fields.observe("status").observe("currentStatus").text("preserveExpiryTime")
	asked, path := r.metadata.oldAnnotations[sapcloudPreserve], "metadata.annotations."+sapcloudPreserve
	if asked == "" && until != "" {
		asked, path = v1beta1.PreserveNow, expiry
	}
	value := asked
	switch asked {
	case "", "false":
		return // Machinist preserves no machine without an annotation.
	case "auto-preserved":
		value = v1beta1.PreserveWhenFailed
	case v1beta1.PreserveNow, v1beta1.PreserveWhenFailed:
	default:
		r.fields.report(provider.FindingNote, CodeInvalidValue, path, "The old controller ignores this value, because it "+
			"does not know it.")
		return
	}
	r.metadata.later[v1beta1.AnnotationPreserve] = value
	if until != "" {
		if _, err := time.Parse(time.RFC3339, until); err != nil {
			r.fields.report(provider.FindingLoss, CodePreserve, expiry, "The value is not a time such as "+
				"2030-01-31T12:00:00Z. The machine is preserved for Machinist's default time.")
		} else {
			r.metadata.later[v1beta1.AnnotationPreservedUntil] = until
		}
	}
	if until != "" || value == v1beta1.PreserveNow {
		r.fields.report(provider.FindingNote, CodePreserve, path, "The machine is preserved. Machinist removes the "+
			"machine from its set, and the set creates another machine. Machinist deletes the preserved machine when the time "+
			"is over.")
	}
}
