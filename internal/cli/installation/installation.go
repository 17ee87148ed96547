// Package installation lists the versions of Machinist in a cluster, of its kinds, its processes and the command
// itself, and warns about versions that do not work together.
package installation

import (
	"cmp"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Labels by which the parts of an installation are found. The charts set them on everything that they install, and each
// process sets them on its Lease.
const (
	LabelPartOf  = "app.kubernetes.io/part-of"
	LabelName    = "app.kubernetes.io/name"
	LabelVersion = "app.kubernetes.io/version"
	// PartOf is the value of LabelPartOf.
	PartOf = "machinist"
)

// Versions are the versions of all parts of an installation.
type Versions struct {
	Client Client `json:"client"`
	// Kinds are nil if only the version of the client is wanted, or if they cannot be read.
	Kinds     []Kind    `json:"kinds"`
	Processes []Process `json:"processes"`
	// Warnings are sentences about versions that do not work together, and what to do.
	Warnings []string `json:"warnings,omitempty"`
	// Unread are sentences about objects that could not be read.
	Unread []string `json:"unread,omitempty"`
}

// Client is the command itself.
type Client struct {
	// Version is the release. Build is the release with the commit and the version of Go.
	Version string `json:"version"`
	Build   string `json:"build"`
	// API is the API version that the command uses.
	API string `json:"api"`
}

// Kind is a CustomResourceDefinition.
type Kind struct {
	Name string `json:"name"`
	// Release is the release of the chart or manifest that installed the kind. It is empty if the kind has no such label.
	Release string `json:"release,omitempty"`
	// Served are the API versions that clients may use, Storage is the version in which objects are written, and Stored
	// are the versions in which objects may be stored.
	Served  []string `json:"served"`
	Storage string   `json:"storage"`
	Stored  []string `json:"stored"`
}

// KindOf returns the versions of a CustomResourceDefinition.
func KindOf(crd *apiextensionsv1.CustomResourceDefinition) Kind {
	k := Kind{Name: crd.Spec.Names.Kind, Release: crd.Labels[LabelVersion], Stored: crd.Status.StoredVersions}
	for _, v := range crd.Spec.Versions {
		if v.Served {
			k.Served = append(k.Served, v.Name)
		}
		if v.Storage {
			k.Storage = v.Name
		}
	}
	return k
}

// Process stands for all replicas of one program in one version.
type Process struct {
	Program   string `json:"program"`
	Namespace string `json:"namespace"`
	// Version is empty if it is not known. VersionFrom is its source: "lease" if the process reported it on its Lease,
	// "image" for the tag of the image, and "label" for the label that the chart sets.
	Version     string `json:"version,omitempty"`
	VersionFrom string `json:"versionFrom,omitempty"`
	Image       string `json:"image,omitempty"`
	// Pods is the number of pods, and Ready the number of Ready pods. Both are 0 for a process outside of the cluster.
	Pods  int `json:"pods"`
	Ready int `json:"ready"`
	// Leader is the pod or host that holds the Lease, or empty if none of these replicas holds it.
	Leader string `json:"leader,omitempty"`
}

// ProcessesOf returns the processes of pods, and of Leases that no pod holds. All leases must belong to processes that
// run.
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

// processOf returns the process of one pod.
func processOf(pod *corev1.Pod) Process {
	p := Process{Program: pod.Labels[LabelName], Namespace: pod.Namespace, Pods: 1}
	if len(pod.Spec.Containers) > 0 {
		first := pod.Spec.Containers[0]
		p.Image = first.Image
		// The value nameOverride of the charts changes the label, but not the name of the container.
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

// merge joins the processes of pods that run the same program in the same version.
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

// sameVersion reports whether two pods with the same image have the same version. The version that the leader reports
// counts for all of them.
func sameVersion(a, b Process) bool {
	return a.Version == b.Version || a.VersionFrom == "lease" || b.VersionFrom == "lease"
}

// tagOf returns the tag of an image. It is empty for a digest, and for the tag "latest".
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if tag == "latest" {
		return ""
	}
	return tag
}

// holder returns the host in the identity of a Lease's holder. For a pod, it is the name of the pod.
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

// programOf returns the program that a Lease belongs to.
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
