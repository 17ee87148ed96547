// Package installation is which versions of Machinist a cluster has: of the kinds, of the processes, and of the command
// that asks, and whether they go together.
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
// process on its lease.
const (
	LabelPartOf  = "app.kubernetes.io/part-of"
	LabelName    = "app.kubernetes.io/name"
	LabelVersion = "app.kubernetes.io/version"
	// PartOf is the value of LabelPartOf.
	PartOf = "machinist"
)

// Versions is what there is.
type Versions struct {
	Client Client `json:"client"`
	// Kinds are nil where only the client was asked for, and where they cannot be read.
	Kinds     []Kind    `json:"kinds"`
	Processes []Process `json:"processes"`
	// Warnings say which versions do not go together, and what to do.
	Warnings []string `json:"warnings,omitempty"`
	// Unread says what could not be read, and why.
	Unread []string `json:"unread,omitempty"`
}

// Client is the command that asks.
type Client struct {
	// Version is its release, and Build that with the commit and the version of Go.
	Version string `json:"version"`
	Build   string `json:"build"`
	// API is the version of the API that it uses.
	API string `json:"api"`
}

// Kind is a CustomResourceDefinition.
type Kind struct {
	Name string `json:"name"`
	// Release is that of the chart or manifest that it came with; empty if it does not say.
	Release string `json:"release,omitempty"`
	// Served are the versions of the API that clients may use; Storage is the one that objects are written in, and Stored
	// are those in which some may still be.
	Served  []string `json:"served"`
	Storage string   `json:"storage"`
	Stored  []string `json:"stored"`
}

// KindOf reads a CustomResourceDefinition.
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

// Process is what runs of one program in one version.
type Process struct {
	Program   string `json:"program"`
	Namespace string `json:"namespace"`
	// Version is empty where it is not known. VersionFrom is what reported it: "lease" is the process itself, "image" the
	// tag of its image, "label" the chart.
	Version     string `json:"version,omitempty"`
	VersionFrom string `json:"versionFrom,omitempty"`
	Image       string `json:"image,omitempty"`
	// Pods is how many there are, and Ready how many of them are; both are 0 for a process outside of the cluster.
	Pods  int `json:"pods"`
	Ready int `json:"ready"`
	// Leader is the pod or host that holds the lease; empty if that is none of these.
	Leader string `json:"leader,omitempty"`
}

// ProcessesOf joins pods with the leases that they hold. The leases are those of processes that run.
func ProcessesOf(pods []corev1.Pod, leases []coordinationv1.Lease) []Process {
	var all []Process
	leading := map[string]bool{}
	for i := range pods {
		p := ofPod(&pods[i])
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

// ofPod reads one pod.
func ofPod(pod *corev1.Pod) Process {
	p := Process{Program: pod.Labels[LabelName], Namespace: pod.Namespace, Pods: 1}
	if len(pod.Spec.Containers) > 0 {
		first := pod.Spec.Containers[0]
		p.Image = first.Image
		if !strings.HasPrefix(p.Program, PartOf) {
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

// merge makes one of the pods that run the same.
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

// sameVersion reports whether two pods of one image are of one version. What the leader reports stands for the others.
func sameVersion(a, b Process) bool {
	return a.Version == b.Version || a.VersionFrom == "lease" || b.VersionFrom == "lease"
}

// tagOf is the tag of an image; empty for a digest, and for a tag that says nothing.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if tag == "latest" {
		return ""
	}
	return tag
}

// holder is the host in the identity of a lease's holder: the name of the pod, if it is one.
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

// programOf is the program whose lease it is.
func programOf(lease *coordinationv1.Lease) string {
	return cmp.Or(lease.Labels[LabelName], lease.Name)
}

// IsLease reports whether a lease is one of the project's processes.
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
