package source

import (
	"strconv"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// CodePreserve: what preserves a machine works in another way.
const CodePreserve = "Preserve"

// later collects what the old system would do with a machine because of its labels, annotations and status, and what
// Machinist does when that is gone.
func (r *sapcloudReader) later() {
	if r.metadata.oldLabels[sapcloudForceDeletion] == sapcloudTrue {
		r.metadata.later[v1beta1.AnnotationForceDelete] = "true"
	}
	r.priority()
	r.preserve()
}

// priority reads which machines of a set are deleted first. The autoscaler marks its choice by the priority 1 and a
// time; Machinist has a mark of its own for it.
func (r *sapcloudReader) priority() {
	text := r.metadata.oldAnnotations[sapcloudPriority]
	if text == "" {
		return
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		r.metadata.find(provider.FindingNote, CodeInvalidValue, "annotations."+sapcloudPriority, "It is no number, so the "+
			"old controller ignored it.")
		return
	}
	switch {
	case n == 1 && r.metadata.oldAnnotations[sapcloudMarkTime] != "":
		r.metadata.later[v1beta1.AnnotationDeleteMachine] = "true"
	case n != v1beta1.DefaultDeletePriority: // which is the old system's default, too
		r.metadata.later[v1beta1.AnnotationDeletePriority] = text
	}
}

// preserve reads whether a machine is preserved, or will be when it fails. It may be by an annotation on its Node,
// which shows in the status only.
func (r *sapcloudReader) preserve() {
	const expiry = "status.currentStatus.preserveExpiryTime"
	until := r.fields.observe("status").observe("currentStatus").text("preserveExpiryTime")
	asked, path := r.metadata.oldAnnotations[sapcloudPreserve], "metadata.annotations."+sapcloudPreserve
	if asked == "" && until != "" {
		asked, path = v1beta1.PreserveNow, expiry
	}
	value := asked
	switch asked {
	case "", "false":
		return // Machinist preserves nothing by itself.
	case "auto-preserved":
		value = v1beta1.PreserveWhenFailed
	case v1beta1.PreserveNow, v1beta1.PreserveWhenFailed:
	default:
		r.fields.find(provider.FindingNote, CodeInvalidValue, path, "The old controller ignores a value that it does not "+
			"know.")
		return
	}
	r.metadata.later[v1beta1.AnnotationPreserve] = value
	if until != "" {
		if _, err := time.Parse(time.RFC3339, until); err != nil {
			r.fields.find(provider.FindingLoss, CodePreserve, expiry, "It is no time such as 2030-01-31T12:00:00Z. The "+
				"machine is preserved for the time that is usual for Machinist.")
		} else {
			r.metadata.later[v1beta1.AnnotationPreservedUntil] = until
		}
	}
	if until != "" || value == v1beta1.PreserveNow {
		r.fields.find(provider.FindingNote, CodePreserve, path, "The machine is preserved. Machinist takes it from its "+
			"set, which makes another one, and deletes it when the time is over.")
	}
}
