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

const (
	// CodeInvalidVersion: the kubelet version is not a valid Kubernetes version.
	CodeInvalidVersion = "InvalidVersion"
	// CodeCreationTimeout: the old system had no limit for the creation of a machine.
	CodeCreationTimeout = "CreationTimeout"
	// CodeInitializer: another controller must act before the old system creates an instance.
	CodeInitializer = "Initializer"
)

const (
	// kubermaticLease is the Lease of machine-controller in kube-system, for all versions of its API.
	kubermaticLease = "machine-controller"

	// kubermaticOwnedBy is the label of a Node with the UID of its Machine.
	kubermaticOwnedBy = "machine-controller/owned-by"

	// kubermaticInitializers is an annotation of a Machine. While the annotation is not empty, machine-controller
	// ignores the Machine.
	kubermaticInitializers = "machine-controller.kubermatic.io/initializers"

	// kubermaticSkipEvictionAfter is an annotation of a Machine. The value of the annotation is a duration that
	// overrides the flag skip-eviction-after.
	kubermaticSkipEvictionAfter = "machine-controller.kubermatic.io/skip-eviction-after"

	// kubermaticEvictionFlag and kubermaticJoinFlag are flags of machine-controller.
	kubermaticEvictionFlag = "skip-eviction-after"
	kubermaticJoinFlag     = "join-cluster-timeout"

	// noCreationLimit is the creation timeout for machines without a limit in the old system.
	noCreationLimit = 24 * time.Hour
)

// kubermaticInternalKeys are annotations of machine-controller that no other system needs, or that the conversion
// handles.
var kubermaticInternalKeys = []string{
	"machine-controller/machine-type-revision", "k8c.io/machine-deployment-revision",
	kubermaticInitializers, kubermaticSkipEvictionAfter,
}

var kubermaticFinalizers = []string{
	"machine-delete-finalizer", "machine-node-delete-finalizer", "machine.cluster.k8s.io",
}

func kubermaticLeases() []types.NamespacedName {
	return []types.NamespacedName{{Namespace: metav1.NamespaceSystem, Name: kubermaticLease}}
}

// fullVersion matches valid values of spec.version.
var fullVersion = regexp.MustCompile(`^v(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})` +
	`(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

// kubermaticMachine reads the spec of a machine without the instance description. It returns the name of the Node, or
// "".
func kubermaticMachine(d *dialect, f *fields, to *v1beta1.MachineSpec) (nodeName string) {
	nodeName = d.nodeMeta(f, &to.Node)
	to.Node.Taints = f.taints(nil)
	versions := f.child("versions")
	to.Version = kubeletVersion(versions)
	versions.reportLoss("Machinist does not create control planes.", "controlPlane")
	versions.reportLoss("Machinist has no field for the container runtime. The user data installs the container runtime.",
		"containerRuntime")
	f.reportLoss("Kubernetes no longer has dynamic configuration of kubelets.", "configSource")
	return nodeName
}

func kubeletVersion(versions *fields) string {
	version := versions.text("kubelet")
	if version == "" {
		return ""
	}
	version = "v" + strings.TrimPrefix(version, "v")
	if !fullVersion.MatchString(version) || len(version) > 64 {
		versions.report(provider.FindingLoss, CodeInvalidVersion, "kubelet", "The value is not a full version of "+
			"Kubernetes such as 1.36.3, so the machines get no version.")
		return ""
	}
	return version
}

// kubermaticTimeouts returns the timeouts of machines. Annotations may override the drain timeout. Later annotations
// take precedence.
func kubermaticTimeouts(f *fields, flags Flags, annotations ...map[string]string) v1beta1.MachineTimeouts {
	drain := flags.duration(kubermaticEvictionFlag, f)
	for _, all := range annotations {
		text := all[kubermaticSkipEvictionAfter]
		if text == "" {
			continue
		}
		if d, err := time.ParseDuration(text); err == nil && d >= 0 {
			drain = &d
		} else {
			f.report(provider.FindingNote, CodeInvalidValue, "metadata.annotations."+kubermaticSkipEvictionAfter,
				"The value is not a duration such as 30m, so the old controller ignored it.")
		}
	}
	return v1beta1.MachineTimeouts{Creation: asDuration(noCreationLimit), Drain: asDuration(valueOr(drain,
		v1beta1.DefaultDrainTimeout))}
}

func asDuration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

func valueOr[T any](value *T, fallback T) T {
	if value == nil {
		return fallback
	}
	return *value
}

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
