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

// Reasons of events on a MachineClass about instances without a Machine.
const (
	// reasonMismatch surfaces on the record of the cluster id when this process has another one.
	reasonMismatch = "ClusterIDMismatch"
	// reasonDeleted surfaces on the class by which orphans were found that are being removed.
	reasonDeleted = "OrphanDeleted"
	// reasonFailed surfaces on the class when the provider refuses to remove some.
	reasonFailed = "OrphanDeletionFailed"
	// reasonFound surfaces on the class when orphans are only reported.
	reasonFound = "OrphanFound"
	// reasonBlocked surfaces on the class when orphans are not removed until a person confirms.
	reasonBlocked = v1beta1.ConditionOrphanRemovalBlocked
	// reasonDuplicate surfaces on a Machine that has an instance beside the one that it has recorded.
	reasonDuplicate = "StrayInstance"
)

// actionCollect is the action of the events.
const actionCollect = "CollectOrphans"

// namedInEvent is how many instances an event names.
const namedInEvent = 5

// changes gathers the events of one pass: there is one for each object and reason.
type changes struct{ items []*item }

type item struct {
	about  client.Object
	reason string
	what   []string
}

func (n *changes) add(about client.Object, reason, what string) {
	for _, i := range n.items {
		if i.about == about && i.reason == reason {
			i.what = append(i.what, what)
			return
		}
	}
	n.items = append(n.items, &item{about, reason, []string{what}})
}

func (n *changes) report(recorder events.EventRecorder) {
	for _, i := range n.items {
		text, kind := "", corev1.EventTypeWarning
		switch i.reason {
		case reasonDeleted:
			text, kind = "Instances without a Machine are being removed", corev1.EventTypeNormal
		case reasonFailed:
			text = "Instances without a Machine cannot be removed"
		case reasonFound:
			text = "Instances have no Machine; --orphan-action=report leaves them where they are"
		case reasonBlocked:
			text = "Instances without a Machine are not removed until a person confirms; the class's condition OrphanRemovalBlocked says why and how"
		case reasonDuplicate:
			text = "The machine has instances beside the one that it has recorded, which are left alone"
		}
		recorder.Eventf(i.about, nil, kind, i.reason, actionCollect, "%s: %s", text, enumerate(i.what))
	}
}

// enumerate is short enough for an event, whatever a provider calls its instances.
func enumerate(what []string) string {
	what = slices.Clone(what)
	for i := range what {
		what[i] = fmt.Sprintf("%.150s", what[i])
	}
	if more := len(what) - namedInEvent; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(what[:namedInEvent], ", "), more)
	}
	return strings.Join(what, ", ")
}

func nameOf(o client.Object) string { return client.ObjectKeyFromObject(o).String() }

// machineOf returns the Machine that the tags name.
func machineOf(in *provider.Instance) provider.Machine {
	namespace, name, _ := strings.Cut(in.MachineKey, "/")
	return provider.Machine{Namespace: namespace, Name: name, UID: in.MachineUID}
}
