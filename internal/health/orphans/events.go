package orphans

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// Reasons of events about orphans on a MachineClass. A duplicate is reported on its Machine.
const (
	// reasonMismatch surfaces on the ConfigMap with the recorded cluster ID if this process has a different cluster ID.
	reasonMismatch = "ClusterIDMismatch"
	// reasonDeleted surfaces when orphans were removed. The event is on the class whose credentials found the orphans.
	reasonDeleted = "OrphanDeleted"
	// reasonFailed surfaces on the class when the provider cannot remove some orphans.
	reasonFailed = "OrphanDeletionFailed"
	// reasonFound surfaces on the class when orphans are only reported.
	reasonFound = "OrphanFound"
	// reasonBlocked surfaces on the class when orphans are not removed until an administrator confirms the removal.
	reasonBlocked = v1beta1.ConditionOrphanRemovalBlocked
	// reasonDuplicate surfaces on a Machine that has another instance in addition to its recorded instance.
	reasonDuplicate = "StrayInstance"
)

const actionCollect = "CollectOrphans"

const maxNamedInEvent = 5

type eventBatch struct{ items []*item }

type item struct {
	about  client.Object
	reason string
	what   []string
}

func (b *eventBatch) add(about client.Object, reason, what string) {
	for _, i := range b.items {
		if i.about == about && i.reason == reason {
			i.what = append(i.what, what)
			return
		}
	}
	b.items = append(b.items, &item{about, reason, []string{what}})
}

func (b *eventBatch) report(recorder events.EventRecorder) {
	for _, i := range b.items {
		text, kind := "", corev1.EventTypeWarning
		switch i.reason {
		case reasonDeleted:
			text, kind = "Removing instances that have no Machine", corev1.EventTypeNormal
		case reasonFailed:
			text = "Cannot remove instances that have no Machine"
		case reasonFound:
			text = "Found instances that have no Machine, and kept them because of --orphan-action=report"
		case reasonBlocked:
			text = "Instances without a Machine are not removed until an administrator confirms, see the condition OrphanRemovalBlocked of the class"
		case reasonDuplicate:
			text = "Found and kept instances of the machine other than the recorded one"
		}
		recorder.Eventf(i.about, nil, kind, i.reason, actionCollect, "%s: %s", text, enumerate(i.what))
	}
}

func enumerate(what []string) string {
	what = slices.Clone(what)
	for i := range what {
		what[i] = fmt.Sprintf("%.150s", what[i])
	}
	if more := len(what) - maxNamedInEvent; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(what[:maxNamedInEvent], ", "), more)
	}
	return strings.Join(what, ", ")
}

func nameOf(o client.Object) string { return client.ObjectKeyFromObject(o).String() }

func machineOf(in *provider.Instance) provider.Machine {
	namespace, name, _ := strings.Cut(in.MachineKey, "/")
	return provider.Machine{Namespace: namespace, Name: name, UID: in.MachineUID}
}
