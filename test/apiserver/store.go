// Package apiserver is the API server of a deterministic world: an in-memory, versioned log of objects with the
// semantics of kube-apiserver, single-threaded, without wall clock, randomness, goroutines or locks, and cheap to
// copy.
//
// What it keeps of the real one: resource versions and conflicts, generated names, generations, no-op writes that
// leave no trace, the status, scale, eviction and approval subresources, finalizers and graceful deletion,
// propagation policies with the garbage collector, the defaults, pruning, schema and rules of Machinist's
// CustomResourceDefinitions, the kinds of other systems while their definitions are stored, validating admission
// policies (policy.go), disruption budgets, the end of a namespace with all that is in it, and the error that a
// client gets in each case.
//
// What it leaves out: namespaces need not exist, though one that does refuses what is new when it is being deleted;
// managedFields are never shown, and server-side apply knows owners of single labels and annotations only: what else a
// manager applies is merged without conflicts, and stays when it is no longer applied;
// lists are never paged; built-in kinds get no more of their defaults and validation
// than builtin.go names; a response replaces the caller's object wholly, where a real client leaves fields that the
// response lacks as they were.
package apiserver

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// firstRevision is that of a server without any write: like in etcd it is not 0, which clients take for "any".
const firstRevision = 1

// Server is one API server with its etcd. It is not safe for concurrent use, but clones of one server may be used
// concurrently.
type Server struct {
	scheme   *runtime.Scheme
	registry *registry
	now      func() time.Time

	// log[i] made revision firstRevision+1+i.
	log     []Change
	tables  []table
	created int64
	// live are the stored objects by their UIDs.
	live map[types.UID]owner
	// pending caches what the background controllers would do at pendingAt.
	pending   []step
	pendingAt int64
}

// Change is one committed write. Objects in the log are immutable: whoever reads them must not change them.
type Change struct {
	Revision int64
	// Type is Added, Modified or Deleted.
	Type watch.EventType
	GVK  schema.GroupVersionKind
	Key  client.ObjectKey
	// Old is the state before, nil if Type is Added.
	Old client.Object
	// New is the state after. If Type is Deleted it is the last state with the resource version of the deletion, as a
	// watch shows it.
	New client.Object
	// Actor is the name of the client that wrote, or of a background controller.
	Actor string
	// Verb is that of the request, with the subresource if it had one: "patch", "patch/status".
	Verb string
}

// record is one stored state of an object. It is immutable, and clones share it.
type record struct {
	key client.ObjectKey
	// object has its apiVersion and kind set.
	object client.Object
	meta   *metav1.ObjectMeta
	// body is the object's JSON without apiVersion, kind and metadata.
	body map[string]any
	// managed is what the server knows of the field managers.
	managed managed
	// defaultStatus says that the status is the schema's default. A creation stores none, and readers get the default, so
	// the next write stores something new even if it changes nothing.
	defaultStatus bool
}

// owner is an object that others may name as theirs.
type owner struct {
	kind   *kind
	record *record
}

// table holds the objects of one kind in order of namespace and name.
type table []*record

func (t table) find(key client.ObjectKey) (int, bool) {
	return slices.BinarySearchFunc(t, key, func(r *record, key client.ObjectKey) int { return compareKeys(r.key, key) })
}

func compareKeys(a, b client.ObjectKey) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// New returns an empty server. now is the clock of the world: it stamps creations and deletions.
func New(scheme *runtime.Scheme, now func() time.Time) *Server {
	r := builtRegistry()
	return &Server{scheme: scheme, registry: r, now: now, tables: make([]table, len(r.kinds)), live: map[types.UID]owner{}}
}

// SkipUIDs leaves the next n UIDs out, so that objects of two servers have different ones.
func (s *Server) SkipUIDs(n int64) { s.created += n }

// Clone returns a copy that goes its own way from now on and has its own clock. It shares the immutable objects.
func (s *Server) Clone(now func() time.Time) *Server {
	clone := *s
	clone.now = now
	clone.log = s.log[:len(s.log):len(s.log)]
	clone.tables = make([]table, len(s.tables))
	for i, t := range s.tables {
		clone.tables[i] = slices.Clone(t)
	}
	clone.live = maps.Clone(s.live)
	clone.pending = slices.Clone(s.pending)
	return &clone
}

// Revision returns the revision of the newest write.
func (s *Server) Revision() int64 { return firstRevision + int64(len(s.log)) }

// Changes returns all writes after a revision, of all kinds, in order. The slice is the server's own: it must not be
// changed.
func (s *Server) Changes(after int64) []Change {
	from := max(after-firstRevision, 0)
	if from >= int64(len(s.log)) {
		return nil
	}
	return s.log[from:len(s.log):len(s.log)]
}

// Snapshot returns all objects of a kind at the newest revision, in order of namespace and name. They are immutable.
func (s *Server) Snapshot(gvk schema.GroupVersionKind) []client.Object {
	k, ok := s.registry.byGVK[gvk]
	if !ok {
		return nil
	}
	objects := make([]client.Object, len(s.tables[k.index]))
	for i, r := range s.tables[k.index] {
		objects[i] = r.object
	}
	return objects
}

// get returns the stored state of an object, nil if there is none.
func (s *Server) get(k *kind, key client.ObjectKey) *record {
	if i, ok := s.tables[k.index].find(key); ok {
		return s.tables[k.index][i]
	}
	return nil
}

// put commits a new state. The record is the server's from now on, which sets its resource version.
func (s *Server) put(k *kind, req request, old, next *record) {
	next.meta.ResourceVersion = formatRevision(s.Revision() + 1)
	change := Change{Type: watch.Added, GVK: k.gvk, Key: next.key, New: next.object, Actor: req.actor, Verb: req.name()}
	s.live[next.meta.UID] = owner{k, next}
	i, found := s.tables[k.index].find(next.key)
	if found {
		s.tables[k.index][i] = next
		change.Type, change.Old = watch.Modified, old.object
	} else {
		s.tables[k.index] = slices.Insert(s.tables[k.index], i, next)
	}
	s.commit(change)
}

// remove commits the end of an object.
func (s *Server) remove(k *kind, req request, old *record) {
	delete(s.live, old.meta.UID)
	i, _ := s.tables[k.index].find(old.key)
	s.tables[k.index] = slices.Delete(s.tables[k.index], i, i+1)
	last := k.shallow(old.object)
	metaOf(last).ResourceVersion = formatRevision(s.Revision() + 1)
	s.commit(Change{Type: watch.Deleted, GVK: k.gvk, Key: old.key, Old: old.object, New: last, Actor: req.actor,
		Verb: req.name()})
}

func (s *Server) commit(c Change) {
	c.Revision = s.Revision() + 1
	s.log = append(s.log, c)
}

func formatRevision(r int64) string { return strconv.FormatInt(r, 10) }

// timestamp returns the time as the server stores it: in whole seconds.
func (s *Server) timestamp() metav1.Time {
	return metav1.Time{Time: s.now().Local().Truncate(time.Second)}
}

// nextUID counts the objects that were ever created.
func (s *Server) nextUID() types.UID {
	s.created++
	return types.UID(fmt.Sprintf("uid-%06d", s.created))
}

// suffixAlphabet is the one of generated names: without vowels and what looks alike.
const suffixAlphabet = "bcdfghjklmnpqrstvwxz2456789"

// generateName returns a free name with the prefix. Each depends on the number of objects created before only.
func (s *Server) generateName(k *kind, namespace, prefix string) string {
	const suffixLength, longestPrefix = 5, 58
	if len(prefix) > longestPrefix {
		prefix = prefix[:longestPrefix]
	}
	for salt := uint64(0); ; salt++ {
		// The finalizer of splitmix64 spreads the counter over all bits.
		x := (uint64(s.created)+1)*0x9e3779b97f4a7c15 + salt*0xd1342543de82ef95
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		x ^= x >> 31
		suffix := make([]byte, suffixLength)
		for i := range suffix {
			suffix[i] = suffixAlphabet[x%uint64(len(suffixAlphabet))]
			x /= uint64(len(suffixAlphabet))
		}
		name := prefix + string(suffix)
		if s.get(k, client.ObjectKey{Namespace: namespace, Name: name}) == nil {
			return name
		}
	}
}
