// Package installation lists the versions of Machinist's kinds and processes in a cluster, and of the command. The
// package warns about versions that do not work together.
package installation

import (
	"cmp"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Labels of an installation. The charts set these labels on all objects, and each process sets the labels on its Lease.
const (
	LabelPartOf  = "app.kubernetes.io/part-of"
	LabelName    = "app.kubernetes.io/name"
	LabelVersion = "app.kubernetes.io/version"
	// PartOf is the value of LabelPartOf.
	PartOf = "machinist"
)

// Versions is the output of "machinist version": the versions of the command, the CustomResourceDefinitions and the
// processes.
type Versions struct {
	Client Client `json:"client"`
	// Kinds is nil if only the client's version was requested, or if the CustomResourceDefinitions cannot be read.
	Kinds     []Kind    `json:"kinds"`
	Processes []Process `json:"processes"`
	// Warnings say which versions do not work together, and what to do.
	Warnings []string `json:"warnings,omitempty"`
	// ReadErrors holds error messages: one sentence for each kind of object that could not be read.
	ReadErrors []string `json:"unread,omitempty"`
}

// Client holds the versions of the machinist command that the user runs.
type Client struct {
	// Version is the release. Build also has the commit and the version of Go.
	Version string `json:"version"`
	Build   string `json:"build"`
	// API is the API version that the command uses.
	API string `json:"api"`
}

// Kind holds the versions of a CustomResourceDefinition.
type Kind struct {
	Name string `json:"name"`
	// Release is the release that installed the CustomResourceDefinition, according to its label. It may be empty.
	Release string `json:"release,omitempty"`
	// ServedVersions lists the API versions that clients may use. Storage is the API version in which the API server
	// stores objects now. Stored lists the API versions in which existing objects may still be stored.
	ServedVersions []string `json:"served"`
	Storage        string   `json:"storage"`
	Stored         []string `json:"stored"`
}

// KindOf extracts the versions from a CustomResourceDefinition.
func KindOf(crd *apiextensionsv1.CustomResourceDefinition) Kind {
	k := Kind{Name: crd.Spec.Names.Kind, Release: crd.Labels[LabelVersion], Stored: crd.Status.StoredVersions}
	for _, v := range crd.Spec.Versions {
		if v.Served {
			k.ServedVersions = append(k.ServedVersions, v.Name)
		}
		if v.Storage {
			k.Storage = v.Name
		}
	}
	return k
}

// Process is the set of all replicas of a program with the same version.
type Process struct {
	Program   string `json:"program"`
	Namespace string `json:"namespace"`
	// Version is the version of the program, or empty. VersionFrom is its source: "lease" if the process reported it,
	// "image" for the tag of the image, and "label" for the chart's label.
	Version     string `json:"version,omitempty"`
	VersionFrom string `json:"versionFrom,omitempty"`
	Image       string `json:"image,omitempty"`
	// Pods is the number of pods, and Ready is the number of Ready pods. For a process outside of the cluster, both
	// numbers are 0.
	Pods  int `json:"pods"`
	Ready int `json:"ready"`
	// Leader is the pod or host that holds the Lease, or empty.
	Leader string `json:"leader,omitempty"`
}

// ProcessesOf returns the processes that run in the pods, and the processes outside of the cluster that hold a Lease.
// The caller must omit the Leases of processes that are not running.
func ProcessesOf(pods []corev1.Pod, leases []coordinationv1.Lease) []Process {
	var all []Process
	leading := map[string]bool{}
	for i := range pods {
		p := processOf(&pods[i])
		for j := range leases {
			if lease := &leases[j]; holder(lease) == pods[i].Name && programOf(lease) == p.Program {
				leading[lease.Namespace+"/"+lease.Name] = true
				p.Leader = pods[i].Name
				if v := lease.Labels[LabelVersion]; v != "" {
					p.Version, p.VersionFrom = v, "lease"
				}
			}
		}
		all = append(all, p)
	}
	all = merge(all)
	for i := range leases {
		lease := &leases[i]
		if leading[lease.Namespace+"/"+lease.Name] {
			continue
		}
		p := Process{Program: programOf(lease), Namespace: lease.Namespace, Version: lease.Labels[LabelVersion],
			Leader: holder(lease)}
		if p.Version != "" {
			p.VersionFrom = "lease"
		}
		all = append(all, p)
	}
	slices.SortStableFunc(all, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.Program, b.Program), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Version, b.Version), cmp.Compare(a.Image, b.Image))
	})
	return all
}

func processOf(pod *corev1.Pod) Process {
	p := Process{Program: pod.Labels[LabelName], Namespace: pod.Namespace, Pods: 1}
	if len(pod.Spec.Containers) > 0 {
		first := pod.Spec.Containers[0]
		p.Image = first.Image
		// nameOverride in the chart changes the label, but not the name of the container.
		if strings.HasPrefix(first.Name, PartOf) || !strings.HasPrefix(p.Program, PartOf) {
			p.Program = first.Name
		}
	}
	if p.Version = tagOf(p.Image); p.Version != "" {
		p.VersionFrom = "image"
	} else if p.Version = pod.Labels[LabelVersion]; p.Version != "" {
		p.VersionFrom = "label"
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			p.Ready = 1
		}
	}
	return p
}

func merge(pods []Process) []Process {
	var all []Process
	for _, p := range pods {
		i := slices.IndexFunc(all, func(o Process) bool {
			return o.Program == p.Program && o.Namespace == p.Namespace && o.Image == p.Image && sameVersion(o, p)
		})
		if i < 0 {
			all = append(all, p)
			continue
		}
		o := &all[i]
		o.Pods, o.Ready, o.Leader = o.Pods+p.Pods, o.Ready+p.Ready, cmp.Or(o.Leader, p.Leader)
		if p.VersionFrom == "lease" {
			o.Version, o.VersionFrom = p.Version, p.VersionFrom
		}
	}
	return all
}

// sameVersion reports whether two pods with the same image have the same version. Pods without a reported version have
// the leader's version.
func sameVersion(a, b Process) bool {
	return a.Version == b.Version || a.VersionFrom == "lease" || b.VersionFrom == "lease"
}

// tagOf returns the tag of an image. It is empty for a digest and for "latest".
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if tag == "latest" {
		return ""
	}
	return tag
}

// holder returns the host name of the Lease's holder, which is the name of its pod.
func holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	identity := *lease.Spec.HolderIdentity
	if i := strings.LastIndex(identity, "_"); i >= 0 {
		return identity[:i]
	}
	return identity
}

func programOf(lease *coordinationv1.Lease) string {
	return cmp.Or(lease.Labels[LabelName], lease.Name)
}

// IsLease reports whether a Lease belongs to a process of Machinist.
func IsLease(lease *coordinationv1.Lease) bool {
	if lease.Labels[LabelPartOf] == PartOf {
		return true
	}
	for _, prefix := range []string{"machinist-manager", "machinist-provider-", "machinist-operator"} {
		if strings.HasPrefix(lease.Name, prefix) {
			return true
		}
	}
	return false
}
