// Package controllermanager is what a deterministic world has of kube-controller-manager and kube-scheduler: the
// controllers of Nodes, of the pods and volumes on them and of certificates, over the store of test/apiserver. The
// store itself has those that need no more than its objects (garbage, namespaces, disruption budgets).
//
// It runs nothing by itself. It says which writes its controllers would do next, and the world chooses: so all orders
// in which independent loops may act are tried. Nothing waits for the periods of the real loops. Where a real
// controller acts after a while, this one may act at once; only times that users see are kept, such as
// tolerationSeconds and the expiration of a token.
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

// The actors of its writes.
const (
	NodeController = "node-controller"
	TaintEviction  = "taint-eviction"
	PodCollector   = "pod-collector"
	Signer         = "signer"
	TokenCleaner   = "token-cleaner"
)

// Manager are the controllers of one cluster.
type Manager struct {
	// Server is the cluster's store.
	Server *apiserver.Server
	// Now is the world's clock.
	Now func() time.Time
	// Silent reports whether the kubelet of a Node has not been heard of for longer than the grace period.
	Silent func(*corev1.Node) bool
	// Volumes is nil where pods have none.
	Volumes *Volumes
}

// Choice is one thing that a controller may do now.
type Choice struct {
	Name string
	Do   func() error
}

// Choices returns what the controllers may do now, in a fixed order.
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
		} else if node != nil && p.DeletionTimestamp.IsZero() && m.mustGo(p, node) {
			out = append(out, m.evict(p))
		}
	}
	out = append(out, m.volumeChoices(nodes)...)
	return append(out, append(m.signatures(), m.expiredTokens()...)...)
}

// Due returns when the next of the things is due that wait for a time.
func (m Manager) Due() (at time.Time, any bool) {
	consider := func(t time.Time) {
		if t.After(m.Now()) && (!any || t.Before(at)) {
			at, any = t, true
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
	return at, any
}

var (
	nodeKind    = corev1.SchemeGroupVersion.WithKind("Node")
	podKind     = corev1.SchemeGroupVersion.WithKind("Pod")
	secretKind  = corev1.SchemeGroupVersion.WithKind("Secret")
	requestKind = schema.GroupVersionKind{Group: "certificates.k8s.io", Version: "v1", Kind: "CertificateSigningRequest"}
)

// pods returns the pods by the names of their nodes.
func (m Manager) pods() map[string][]*corev1.Pod {
	found := map[string][]*corev1.Pod{}
	for _, o := range m.Server.Snapshot(podKind) {
		p := o.(*corev1.Pod)
		found[p.Spec.NodeName] = append(found[p.Spec.NodeName], p)
	}
	return found
}

// now is the time as the API stores it.
func (m Manager) now() metav1.Time { return metav1.NewTime(m.Now().Truncate(time.Second)) }

// patch writes what differs between two states of an object as an actor; locked says that nothing else may have
// changed.
func (m Manager) patch(actor string, before, after client.Object, locked bool) error {
	return client.IgnoreNotFound(m.Server.Client(actor).Patch(context.Background(), after, diff(before, locked)))
}

func (m Manager) patchStatus(actor string, before, after client.Object) error {
	return client.IgnoreNotFound(m.Server.Client(actor).Status().Patch(context.Background(), after, diff(before, false)))
}

func diff(before client.Object, locked bool) client.Patch {
	if locked {
		return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	}
	return client.MergeFrom(before)
}

func choose(do func() error, format string, args ...any) Choice {
	return Choice{Name: fmt.Sprintf(format, args...), Do: do}
}
