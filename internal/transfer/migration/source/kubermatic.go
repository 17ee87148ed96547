package source

import (
	"regexp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// Codes of findings about the machines of Kubermatic's machine-controller.
const (
	// CodeInvalidVersion: the version of the kubelet is not one of Kubernetes.
	CodeInvalidVersion = "InvalidVersion"
	// CodeCreationTimeout: the old system waited for a machine without end.
	CodeCreationTimeout = "CreationTimeout"
	// CodeInitializer: the machines of a template wait for another controller before they are made.
	CodeInitializer = "Initializer"
)

const (
	// kubermaticLease is the Lease of machine-controller in kube-system, whatever API it serves.
	kubermaticLease = "machine-controller"

	// kubermaticOwnedBy is the label with the Machine's UID on a Node.
	kubermaticOwnedBy = "machine-controller/owned-by"

	// kubermaticInitializers is an annotation on a Machine. While it has a value, machine-controller ignores the Machine.
	kubermaticInitializers = "machine-controller.kubermatic.io/initializers"

	// kubermaticSkipEvictionAfter is an annotation with a duration, instead of the flag of that name.
	kubermaticSkipEvictionAfter = "machine-controller.kubermatic.io/skip-eviction-after"

	// endlessCreation stands for a wait without end.
	endlessCreation = 24 * time.Hour
)

// kubermaticBookkeeping are annotations of machine-controller that mean nothing to another system, or have a
// counterpart.
var kubermaticBookkeeping = []string{
	"machine-controller/machine-type-revision", "k8c.io/machine-deployment-revision",
	kubermaticInitializers, kubermaticSkipEvictionAfter,
}

// kubermaticFinalizers are those on Machines.
var kubermaticFinalizers = []string{
	"machine-delete-finalizer", "machine-node-delete-finalizer", "machine.cluster.k8s.io",
}

// kubermaticLeases are those of machine-controller.
func kubermaticLeases() []types.NamespacedName {
	return []types.NamespacedName{{Namespace: metav1.NamespaceSystem, Name: kubermaticLease}}
}

// wholeVersion is what spec.version of a Machine has to be.
var wholeVersion = regexp.MustCompile(`^v(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})` +
	`(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

// kubermaticMachine reads what the specification of a machine says beside its instance. It returns the Node's name,
// where the specification has one.
func kubermaticMachine(d *dialect, f *fields, to *v1beta1.MachineSpec) (nodeName string) {
	nodeName = d.nodeMeta(f, &to.Node)
	to.Node.Taints = f.taints("taints")
	versions := f.child("versions")
	to.Version = kubeletVersion(versions)
	versions.loses("Machinist makes no control planes.", "controlPlane")
	versions.loses("Machinist has no field for the container runtime; the user data installs it.", "containerRuntime")
	f.loses("Kubernetes has no dynamic configuration of kubelets any more.", "configSource")
	return nodeName
}

// kubeletVersion returns the version of the kubelet as Machinist spells it.
func kubeletVersion(versions *fields) string {
	version := versions.text("kubelet")
	if version == "" {
		return ""
	}
	version = "v" + strings.TrimPrefix(version, "v")
	if !wholeVersion.MatchString(version) || len(version) > 64 {
		versions.find(provider.FindingLoss, CodeInvalidVersion, "kubelet", "It is no whole version of Kubernetes such as "+
			"1.36.3, so the machines get none.")
		return ""
	}
	return version
}

// kubermaticTimeouts returns the timeouts of machines. annotations are, each instead of the one before it, those that
// may have another time for the drain.
func kubermaticTimeouts(f *fields, flags Flags, annotations ...map[string]string) v1beta1.MachineTimeouts {
	drain := flags.duration("skip-eviction-after", f)
	for _, all := range annotations {
		text := all[kubermaticSkipEvictionAfter]
		if text == "" {
			continue
		}
		if d, err := time.ParseDuration(text); err == nil && d >= 0 {
			drain = &d
		} else {
			f.find(provider.FindingNote, CodeInvalidValue, "metadata.annotations."+kubermaticSkipEvictionAfter,
				"It is no duration such as 30m, so the old controller ignored it.")
		}
	}
	return v1beta1.MachineTimeouts{Creation: asDuration(endlessCreation), Drain: asDuration(or(drain,
		v1beta1.DefaultDrainTimeout))}
}

func asDuration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

func or[T any](value *T, fallback T) T {
	if value == nil {
		return fallback
	}
	return *value
}

// statusWithNodeRef reads the state of a machine whose status is like that of the early Cluster API.
func statusWithNodeRef(f *fields, m *metadata, nodeName string) *Machine {
	status := f.observe("status")
	machine := &Machine{NodeName: nodeName, Deleting: m.deletionRequested}
	if name := status.observe("nodeRef").text("name"); name != "" {
		machine.NodeName = name
	}
	machine.Failed = status.text("errorReason") != "" || status.text("errorMessage") != "" ||
		status.text("phase") == "Failed"
	if m.controller != nil {
		machine.Owner = m.controller.UID
	}
	return machine
}
