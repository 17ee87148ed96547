// Package controllermanager implements the parts of kube-controller-manager and kube-scheduler that the deterministic
// simulation needs: the controllers of Nodes, pods, volumes and certificates. The controllers work on the store of
// test/apiserver. The store itself implements the garbage collector and the controllers of namespaces and disruption
// budgets.
//
// The package runs no loops. The package returns the writes that the controllers may send next, and the simulation
// chooses one of these writes. So the simulation can try every order of the controllers' actions. The real
// controllers repeat some work periodically, but the controllers of this package have no such periods. The
// controllers wait only for times that are visible to users, such as tolerationSeconds and the expiration of a token.
package controllermanager

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/test/apiserver"
)

// Actors of the writes.
const (
	NodeController = "node-controller"
	TaintEviction  = "taint-eviction"
	PodCollector   = "pod-collector"
	Signer         = "signer"
	TokenCleaner   = "token-cleaner"
)

// Manager contains the controllers of one cluster.
type Manager struct {
	// Server is the store of the cluster.
	Server *apiserver.Server
	// Now is the clock.
	Now func() time.Time
	// IsSilent reports whether the kubelet of a Node has exceeded the grace period.
	IsSilent func(*corev1.Node) bool
	// Volumes is nil if no pod has volumes.
	Volumes *Volumes
}

// Choice is one action that a controller may take now.
type Choice struct {
	Name string
	Do   func() error
}

// Choices returns the actions that the controllers may take now, in a fixed order.
func (m Manager) Choices() []Choice {
	pods := m.pods()
	nodes := map[string]*corev1.Node{}
	var out []Choice
	for _, o := range m.Server.Snapshot(nodeKind) {
		node := o.(*corev1.Node)
		nodes[node.Name] = node
		out = append(out, m.nodeChoices(node, pods[node.Name])...)
	}
	for _, o := range m.Server.Snapshot(podKind) {
		p := o.(*corev1.Pod)
		if node := nodes[p.Spec.NodeName]; m.collectable(p, node) {
			out = append(out, m.collect(p, node))
		} else if node != nil && p.DeletionTimestamp.IsZero() && m.mustEvict(p, node) {
			out = append(out, m.evict(p))
		}
	}
	out = append(out, m.volumeChoices(nodes)...)
	return append(out, append(m.signatures(), m.expiredTokens()...)...)
}

// Due returns the earliest time for which a timed action is planned. ok is false if no timed action is planned.
func (m Manager) Due() (at time.Time, ok bool) {
	consider := func(t time.Time) {
		if t.After(m.Now()) && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	pods, nodes := m.pods(), map[string]*corev1.Node{}
	for _, o := range m.Server.Snapshot(nodeKind) {
		node := o.(*corev1.Node)
		nodes[node.Name] = node
		for _, p := range pods[node.Name] {
			if t, ends := toleratedUntil(p, node); ends && p.DeletionTimestamp.IsZero() {
				consider(t)
			}
		}
	}
	for _, o := range m.Server.Snapshot(secretKind) {
		if t, ok := expiration(o.(*corev1.Secret)); ok {
			consider(t)
		}
	}
	m.volumesDue(nodes, consider)
	return at, ok
}

var (
	nodeKind    = corev1.SchemeGroupVersion.WithKind("Node")
	podKind     = corev1.SchemeGroupVersion.WithKind("Pod")
	secretKind  = corev1.SchemeGroupVersion.WithKind("Secret")
	requestKind = schema.GroupVersionKind{Group: "certificates.k8s.io", Version: "v1", Kind: "CertificateSigningRequest"}
)

func (m Manager) pods() map[string][]*corev1.Pod {
	found := map[string][]*corev1.Pod{}
	for _, o := range m.Server.Snapshot(podKind) {
		p := o.(*corev1.Pod)
		found[p.Spec.NodeName] = append(found[p.Spec.NodeName], p)
	}
	return found
}

// now returns the current time in whole seconds, the precision of the API.
func (m Manager) now() metav1.Time { return metav1.NewTime(m.Now().Truncate(time.Second)) }

// patch sends the difference between two states of an object as a patch of an actor. A locked patch fails if the object
// has changed.
func (m Manager) patch(actor string, before, after client.Object, locked bool) error {
	return client.IgnoreNotFound(m.Server.Client(actor).Patch(context.Background(), after, mergeFrom(before, locked)))
}

func (m Manager) patchStatus(actor string, before, after client.Object) error {
	return client.IgnoreNotFound(m.Server.Client(actor).Status().Patch(context.Background(), after,
		mergeFrom(before, false)))
}

func mergeFrom(before client.Object, locked bool) client.Patch {
	if locked {
		return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	}
	return client.MergeFrom(before)
}

func newChoice(do func() error, format string, args ...any) Choice {
	return Choice{Name: fmt.Sprintf(format, args...), Do: do}
}
