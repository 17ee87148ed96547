// Package apiserver implements the API server of the deterministic simulation. The package keeps a versioned log of
// objects in memory, with the semantics of kube-apiserver. The package is single-threaded and cheap to copy, and uses
// no wall clock, randomness, goroutines or locks.
//
// The package implements these parts of kube-apiserver:
//
//   - resource versions, conflicts, generated names, generations, and writes without a change
//   - the subresources status, scale, eviction and approval
//   - finalizers, graceful deletion, and propagation policies with the garbage collector
//   - defaults, pruning, schema and rules of the CustomResourceDefinitions of Machinist
//   - kinds of other systems while their definitions are stored
//   - validating admission policies (policy.go) and disruption budgets
//   - the deletion of namespaces with their content
//   - the errors of the real server in each of these cases
//
// The package differs from kube-apiserver in these points:
//
//   - Namespaces need not exist. A namespace that is being deleted refuses new objects.
//   - Responses do not contain managedFields. Server-side apply tracks only the owners of single labels and
//     annotations. Other applied fields are merged without conflicts, and remain when they are no longer applied.
//   - Lists are never paged.
//   - Built-in kinds have only the defaults and the validation in builtin.go.
//   - A response replaces the whole object of the caller. A real client keeps fields that are missing in the response.
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

// firstRevision is the revision of a server before the first write. As in etcd, it is not 0, because 0 means "any" to
// clients.
const firstRevision = 1

// Server is one API server with its etcd. A Server is not safe for concurrent use, but clones of one server may be used
// concurrently.
type Server struct {
	scheme   *runtime.Scheme
	registry *registry
	now      func() time.Time

	// log contains all writes. The entry log[i] has the revision firstRevision+1+i.
	log       []Change
	tables    []table
	created   int64
	live      map[types.UID]owner
	pending   []step
	pendingAt int64
}

// Change is one committed write. The objects in a Change are immutable.
type Change struct {
	Revision int64
	// Type is Added, Modified or Deleted.
	Type watch.EventType
	GVK  schema.GroupVersionKind
	Key  client.ObjectKey
	// Old is the state of the object before the write. Old is nil if Type is Added.
	Old client.Object
	// New is the object after the write. After a deletion, New is the last state of the object, with the resource
	// version of the deletion, as in a watch event.
	New client.Object
	// Actor is the name of the client or background controller that sent the write.
	Actor string
	// Verb is the verb of the request, with the subresource if there is one: "patch", "patch/status".
	Verb string
}

// record is one stored state of an object. A record is immutable, because clones of the server share it.
type record struct {
	key client.ObjectKey
	// The fields apiVersion and kind of the object are always set.
	object  client.Object
	meta    *metav1.ObjectMeta
	body    map[string]any
	managed managedFields
	// defaultStatus is true if no client has written a status, so that the status consists of schema defaults. The real
	// server adds such defaults to each response without storing them. So the next write stores these defaults. Such a
	// write changes the object even if the client sends the object unchanged.
	defaultStatus bool
}

type owner struct {
	kind   *kind
	record *record
}

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

// New returns an empty server. now is the clock for the timestamps of creations and deletions.
func New(scheme *runtime.Scheme, now func() time.Time) *Server {
	r := builtRegistry()
	return &Server{scheme: scheme, registry: r, now: now, tables: make([]table, len(r.kinds)), live: map[types.UID]owner{}}
}

// SkipUIDs skips the next n UIDs, so that the objects of two servers have different UIDs.
func (s *Server) SkipUIDs(n int64) { s.created += n }

// Clone returns an independent copy of the server with its own clock. The copy shares the immutable objects.
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

// Changes returns all writes after a revision, of all kinds, in order. Callers must not change the slice.
func (s *Server) Changes(after int64) []Change {
	from := max(after-firstRevision, 0)
	if from >= int64(len(s.log)) {
		return nil
	}
	return s.log[from:len(s.log):len(s.log)]
}

// Snapshot returns all objects of a kind at the newest revision, sorted by namespace and name. Callers must not
// change these objects.
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

func (s *Server) get(k *kind, key client.ObjectKey) *record {
	if i, ok := s.tables[k.index].find(key); ok {
		return s.tables[k.index][i]
	}
	return nil
}

// put commits a new state of an object and sets its resource version. The caller must not change the record
// afterwards.
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

func (s *Server) remove(k *kind, req request, old *record) {
	delete(s.live, old.meta.UID)
	i, _ := s.tables[k.index].find(old.key)
	s.tables[k.index] = slices.Delete(s.tables[k.index], i, i+1)
	last := k.shallowCopy(old.object)
	metaOf(last).ResourceVersion = formatRevision(s.Revision() + 1)
	s.commit(Change{Type: watch.Deleted, GVK: k.gvk, Key: old.key, Old: old.object, New: last, Actor: req.actor,
		Verb: req.name()})
}

func (s *Server) commit(c Change) {
	c.Revision = s.Revision() + 1
	s.log = append(s.log, c)
}

func formatRevision(r int64) string { return strconv.FormatInt(r, 10) }

func (s *Server) timestamp() metav1.Time {
	return metav1.Time{Time: s.now().Local().Truncate(time.Second)}
}

// nextUID returns the UID of a new object, which is derived from the number of objects that the server has created so
// far.
func (s *Server) nextUID() types.UID {
	s.created++
	return types.UID(fmt.Sprintf("uid-%06d", s.created))
}

// suffixAlphabet is the alphabet of generated names. suffixAlphabet contains no vowels and no characters that look
// alike.
const suffixAlphabet = "bcdfghjklmnpqrstvwxz2456789"

// generateName returns an unused name with the prefix. The name depends only on the prefix and the number of objects
// created before.
func (s *Server) generateName(k *kind, namespace, prefix string) string {
	const suffixLength, longestPrefix = 5, 58
	if len(prefix) > longestPrefix {
		prefix = prefix[:longestPrefix]
	}
	for salt := uint64(0); ; salt++ {
		// The last step of the algorithm splitmix64 distributes the counter over all bits.
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
