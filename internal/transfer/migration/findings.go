package migration

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/pkg/provider"
)

// Codes of findings about an old object or its environment. The codes of findings about single fields are in package
// source and in the drivers.
const (
	// CodeNothingFound: the namespace has no old object that the migration could convert.
	CodeNothingFound = "NothingFound"
	// CodeNameTaken: another object of a Machinist kind already has this name.
	CodeNameTaken = "NameTaken"
	// CodeInstanceClaimed: another Machine has this instance.
	CodeInstanceClaimed = "InstanceClaimed"
	// CodeInstanceNotFound: the machine has a Node, but the cloud lists no instance.
	CodeInstanceNotFound = "InstanceNotFound"
	// CodeSeveralInstances: the cloud lists several instances of one old machine.
	CodeSeveralInstances = "SeveralInstances"
	// CodeNodeMismatch: the Node and the cloud spell the provider ID differently, or two Nodes have the same provider
	// ID.
	CodeNodeMismatch = "NodeMismatch"
	// CodeWrongTarget: the target cluster is not the cluster that the old machines joined.
	CodeWrongTarget = "WrongTarget"
	// CodeNodeMissing: the old machine has an instance and names a Node, but the target cluster does not have this Node.
	CodeNodeMissing = "NodeMissing"
	// CodeNotAdoptable: the provider refuses to adopt the instance in its current state.
	CodeNotAdoptable = "NotAdoptable"
	// CodeNoInstance: the old machine has no instance, so the migration creates no Machine for it.
	CodeNoInstance = "NoInstance"
	// CodeUnnamedInstance: the instance has tags of the old system, but belongs to no old machine.
	CodeUnnamedInstance = "UnnamedInstance"
	// CodeInFlight: the old system is changing or deleting the instance.
	CodeInFlight = "InFlight"
	// CodeSecretUnreadable: an old object refers to a Secret or ConfigMap that cannot be used.
	CodeSecretUnreadable = "SecretUnreadable"
	// CodeSecretNotAllowed: an old object refers to a Secret or ConfigMap that the migration may not use.
	CodeSecretNotAllowed = "SecretNotAllowed"
	// CodeSecretInClass: a field of a class contains a value of a Secret.
	CodeSecretInClass = "SecretInClass"
	// CodeNoUserData: the old system generated the user data, so the old objects do not contain it.
	CodeNoUserData = "NoUserData"
	// CodePlaceholder: the user data contains a placeholder that Machinist does not replace.
	CodePlaceholder = "Placeholder"
	// CodeClassInvalid: the driver rejects the converted class.
	CodeClassInvalid = "ClassInvalid"
	// CodeClassMissing: an old object refers to a class that does not exist.
	CodeClassMissing = "ClassMissing"
	// CodeOwnerMissing: an old object has a controlling owner that does not exist.
	CodeOwnerMissing = "OwnerMissing"
	// CodeTemplateApplied: the labels, annotations and taints of a deployment's template are applied to machines of its
	// old sets.
	CodeTemplateApplied = "TemplateApplied"
	// CodeRolloutPending: no set has the current template of the deployment, so a rollout begins after the migration.
	CodeRolloutPending = "RolloutPending"
	// CodeMergeable: several deployments or sets differ only in the zone of their classes.
	CodeMergeable = "Mergeable"
	// CodeRefused: the API server rejects the converted object.
	CodeRefused = "Refused"
	// CodeOverlaps: an older Migration migrates the same fleet or instances, or stops the same old controller.
	CodeOverlaps = "Overlaps"
	// CodeWorkloadUnreadable: a workload that the migration must stop does not exist, or the migrator may not read it.
	CodeWorkloadUnreadable = "WorkloadUnreadable"
	// CodeCannotImport: the provider cannot adopt instances of this system.
	CodeCannotImport = "CannotImport"
	// CodeUnusedOverride: an override of the Migration names a class that does not exist.
	CodeUnusedOverride = "UnusedOverride"
	// CodeUnusedFlag: the conversion of the old system does not read a flag of the Migration.
	CodeUnusedFlag = "UnusedFlag"
	// CodeWebhookRemoved: an admission webhook is only for the old group. The migrator deletes the webhook before it
	// deletes the old objects.
	CodeWebhookRemoved = "WebhookRemoved"
	// CodeWebhookStays: an admission webhook is for the old group and for other API groups. The migrator does not
	// delete this webhook.
	CodeWebhookStays = "WebhookStays"
)

// objectFinding is a finding with the name of its object, such as Machine/worker-1.
type objectFinding struct {
	object string
	provider.Finding
}

type findings []objectFinding

func (f *findings) add(object string, all ...provider.Finding) {
	for _, finding := range all {
		*f = append(*f, objectFinding{object, finding})
	}
}

func (f *findings) addf(level provider.FindingLevel, code, object, path, format string, args ...any) {
	f.add(object, provider.Finding{Level: level, Code: code, Path: path, Message: fmt.Sprintf(format, args...)})
}

func (f findings) redact(r *redactor) {
	for i := range f {
		f[i].Message = r.inText(f[i].Message)
	}
}

// withoutInstances returns true if the finding describes a problem that prevents listing the instances of a class.
func (f objectFinding) withoutInstances() bool {
	return f.Code == CodeCannotImport || f.Code == CodeSecretUnreadable || f.Code == CodeSecretNotAllowed ||
		f.Code == provider.FindingMissingCredentials
}

var levels = []provider.FindingLevel{provider.FindingBlocker, provider.FindingLoss, provider.FindingNote}

// sorted returns the findings ordered by level, code, object and path. Blockers come first.
func (f findings) sorted() findings {
	all := slices.Clone(f)
	slices.SortStableFunc(all, func(a, b objectFinding) int {
		if a.Level != b.Level {
			return slices.Index(levels, a.Level) - slices.Index(levels, b.Level)
		}
		return strings.Compare(a.Code+"\x00"+a.object+"\x00"+a.Path, b.Code+"\x00"+b.object+"\x00"+b.Path)
	})
	return all
}

const maxSummary = 100

func (f findings) summary() []v1beta1.MigrationFinding {
	var lines []v1beta1.MigrationFinding
	for _, one := range f.sorted() {
		if n := len(lines); n > 0 && lines[n-1].Level == string(one.Level) && lines[n-1].Code == one.Code {
			lines[n-1].Count++
			continue
		}
		if len(lines) == maxSummary {
			break
		}
		lines = append(lines, v1beta1.MigrationFinding{Level: string(one.Level), Code: one.Code, Count: 1,
			Message: wording.Shorten(one.line())})
	}
	return lines
}

func (f objectFinding) line() string {
	where := f.object
	if f.Path != "" {
		where += " " + f.Path
	}
	return where + ": " + f.Message
}

// obstacles returns the reasons that prevent the start of the migration: Blockers, and losses that the user has not
// accepted.
func (f findings) obstacles(accepted []string) []string {
	var why []string
	spec := v1beta1.MigrationSpec{Accept: accepted}
	counts := map[string]int{}
	for _, one := range f.sorted() {
		switch {
		case one.Level == provider.FindingBlocker:
			counts[one.Code]++
			if counts[one.Code] <= 3 {
				why = append(why, fmt.Sprintf("%s %s", one.Code, one.line()))
			}
		case one.Level == provider.FindingLoss && !spec.Accepts(one.Code, one.object, one.Path):
			counts[one.Code]++
			if counts[one.Code] == 1 {
				why = append(why, fmt.Sprintf("the loss %s is not accepted: %s", one.Code, one.line()))
			}
		}
	}
	return why
}

func (f findings) text() string {
	var b strings.Builder
	for _, one := range f.sorted() {
		fmt.Fprintf(&b, "%s %s %s\n", one.Level, one.Code, one.line())
	}
	return b.String()
}

// hash covers what the user agrees to: the classes, the Blockers and the losses, but not their numbers.
func (f findings) hash(classes []string) string {
	lines := slices.Clone(classes)
	for _, one := range f {
		if one.Level != provider.FindingNote {
			lines = append(lines, fmt.Sprintf("%s %s %s", one.Level, one.Code, one.Path))
		}
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(slices.Compact(lines), "\n")))
	return hex.EncodeToString(sum[:8])
}
