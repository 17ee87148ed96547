package simulation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"machinist.dev/machinist/internal/platform/process"
	"machinist.dev/machinist/internal/platform/wiring"
	"machinist.dev/machinist/test/apiserver"
)

// cache contains the knowledge of one process about one cluster. The cache has a view for each kind, and each view has
// its own lag.
type cache struct {
	server      *apiserver.Server
	scheme      *runtime.Scheme
	views       []*view
	unreachable func() bool
	indexes     map[schema.GroupVersionKind]map[string]client.IndexerFunc
}

func newCache(server *apiserver.Server, scheme *runtime.Scheme) *cache {
	return &cache{server: server, scheme: scheme, unreachable: func() bool {
		return false
	}, indexes: map[schema.GroupVersionKind]map[string]client.IndexerFunc{}}
}

type view struct {
	cluster wiring.Cluster
	server  *apiserver.Server
	gvk     schema.GroupVersionKind
	// metadata means that the view contains only the metadata of objects.
	metadata  bool
	transform func(any) (any, error)

	objects []client.Object // by key
	seen    int64
	// backlog contains the changes that are not in the view yet. scannedRevision is the revision up to which the log
	// was searched for them.
	scannedRevision int64
	backlog         []apiserver.Change
	// ownWrites contains the revision of this process's last write to each object. A read of an object waits until the
	// view has reached this revision.
	ownWrites    map[types.NamespacedName]int64
	lastOwnWrite int64

	// frozenUntil is the time until which the view receives no changes. After that time, the view continues with a new
	// list if lost is set.
	frozenUntil time.Time
	lost        bool
	// unreachable reports whether the cluster is unreachable. unfilled is true until the first list.
	unreachable func() bool
	unfilled    bool
	// mergedUntil is the time until which the view shows several changes of an object as one.
	mergedUntil time.Time

	subscriptions []*subscription
}

// subscription is a watch of a controller with the events that the controller has not handled yet.
type subscription struct {
	controller *controller
	watch      wiring.Watch
	events     []any
}

func (c *cache) add(cluster wiring.Cluster, object client.Object, transform func(any) (any, error)) error {
	gvk, err := apiutil.GVKForObject(object, c.scheme)
	if err != nil {
		return err
	}
	_, metadata := object.(*metav1.PartialObjectMetadata)
	c.views = append(c.views, &view{
		cluster: cluster, server: c.server, gvk: gvk, metadata: metadata, transform: transform, unreachable: c.unreachable,
		ownWrites: map[types.NamespacedName]int64{},
	})
	return nil
}

func (c *cache) viewOf(object runtime.Object) (*view, error) {
	gvk, err := apiutil.GVKForObject(object, c.scheme)
	if err != nil {
		return nil, err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	metadata := false
	switch object.(type) {
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		metadata = true
	}
	for _, v := range c.views {
		if v.gvk == gvk && v.metadata == metadata {
			return v, nil
		}
	}
	return nil, fmt.Errorf("%s is not cached (metadata: %t)", gvk.Kind, metadata)
}

// IndexField implements client.FieldIndexer.
func (c *cache) IndexField(_ context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	gvk, err := apiutil.GVKForObject(object, c.scheme)
	if err != nil {
		return err
	}
	if c.indexes[gvk] == nil {
		c.indexes[gvk] = map[string]client.IndexerFunc{}
	}
	c.indexes[gvk][field] = extract
	return nil
}

// Get implements client.Reader. The object may be out of date.
func (c *cache) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	v, err := c.viewOf(into)
	if err != nil {
		return err
	}
	if v.unfilled {
		return fmt.Errorf("the cache of %s has not been filled yet", v.gvk.Kind)
	}
	i, found := v.search(key)
	if !found {
		return notFound(v.gvk, key.Name)
	}
	return copyInto(v.objects[i], into)
}

// List implements client.Reader.
func (c *cache) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	v, err := c.viewOf(list)
	if err != nil {
		return err
	}
	if v.unfilled {
		return fmt.Errorf("the cache of %s has not been filled yet", v.gvk.Kind)
	}
	o := (&client.ListOptions{}).ApplyOptions(opts)
	var found []client.Object
	for _, object := range v.objects {
		ok, err := c.matches(v, object, o)
		if err != nil {
			return err
		}
		if ok {
			found = append(found, object)
		}
	}
	deep := o.UnsafeDisableDeepCopy == nil || !*o.UnsafeDisableDeepCopy
	if err := fill(list, found, deep); err != nil {
		return err
	}
	list.SetResourceVersion(v.version())
	return nil
}

func (c *cache) matches(v *view, object client.Object, o *client.ListOptions) (bool, error) {
	if o.Namespace != "" && object.GetNamespace() != o.Namespace {
		return false, nil
	}
	if o.LabelSelector != nil && !o.LabelSelector.Empty() && !o.LabelSelector.Matches(labels.Set(object.GetLabels())) {
		return false, nil
	}
	if o.FieldSelector == nil {
		return true, nil
	}
	for _, r := range o.FieldSelector.Requirements() {
		extract := c.indexes[v.gvk][r.Field]
		if extract == nil {
			return false, fmt.Errorf("the cache of %s has no index %s", v.gvk.Kind, r.Field)
		}
		if !slices.Contains(extract(object), r.Value) {
			return false, nil
		}
	}
	return true, nil
}

func (v *view) search(key client.ObjectKey) (int, bool) {
	return slices.BinarySearchFunc(v.objects, key, func(o client.Object, key client.ObjectKey) int {
		return compareKeys(client.ObjectKeyFromObject(o), key)
	})
}

func compareKeys(a, b types.NamespacedName) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// fill replaces the content of the view by a list of the kind. The list lacks the last changes. late is the number of
// missing changes. The API server may answer an informer's first list from its own cache, which may be out of date.
func (v *view) fill(late int) error {
	v.objects = nil
	for _, o := range v.server.Snapshot(v.gvk) {
		stored, err := v.stored(o)
		if err != nil {
			return err
		}
		v.objects = append(v.objects, stored)
	}
	v.seen, v.scannedRevision, v.backlog = v.server.Revision(), v.server.Revision(), nil
	if late == 0 {
		return nil
	}
	var last []apiserver.Change
	for _, c := range v.server.Changes(0) {
		if c.GVK == v.gvk {
			last = append(last, c)
		}
	}
	for ; late > 0 && len(last) > 0; late-- {
		c := last[len(last)-1]
		last = last[:len(last)-1]
		v.backlog = slices.Insert(v.backlog, 0, c)
		if err := v.put(c.Key, c.Old); err != nil {
			return err
		}
		v.seen = c.Revision - 1
	}
	return nil
}

func (v *view) resume(from *view) {
	v.objects, v.backlog, v.ownWrites = slices.Clone(from.objects), slices.Clone(from.backlog), maps.Clone(from.ownWrites)
	v.seen, v.scannedRevision, v.lastOwnWrite = from.seen, from.scannedRevision, from.lastOwnWrite
	v.frozenUntil, v.lost, v.mergedUntil, v.unfilled = from.frozenUntil, from.lost, from.mergedUntil, from.unfilled
}

func (v *view) stored(o client.Object) (client.Object, error) {
	if v.metadata {
		partial := &metav1.PartialObjectMetadata{}
		partial.SetGroupVersionKind(v.gvk)
		if err := copyInto(o, partial); err != nil {
			return nil, err
		}
		o = partial
	}
	if v.transform == nil {
		return o, nil
	}
	out, err := v.transform(o.DeepCopyObject())
	if err != nil {
		return nil, err
	}
	return out.(client.Object), nil
}

func (v *view) put(key client.ObjectKey, o client.Object) error {
	i, found := v.search(key)
	switch {
	case o == nil && found:
		v.objects = slices.Delete(v.objects, i, i+1)
	case o == nil:
	default:
		stored, err := v.stored(o)
		if err != nil {
			return err
		}
		if found {
			v.objects[i] = stored
		} else {
			v.objects = slices.Insert(v.objects, i, stored)
		}
	}
	return nil
}

func (v *view) behind() bool {
	if !v.frozenUntil.IsZero() || v.unfilled || v.unreachable() {
		return false
	}
	if revision := v.server.Revision(); v.scannedRevision < revision {
		for _, c := range v.server.Changes(v.scannedRevision) {
			if c.GVK == v.gvk {
				v.backlog = append(v.backlog, c)
			}
		}
		v.scannedRevision = revision
	}
	return len(v.backlog) > 0
}

func (v *view) advance() error {
	if !v.mergedUntil.IsZero() {
		return v.relist()
	}
	c := v.backlog[0]
	v.backlog = v.backlog[1:]
	var before client.Object
	if i, found := v.search(c.Key); found {
		before = v.objects[i]
	}
	after := c.New
	if c.Type == watch.Deleted {
		after = nil
	}
	if err := v.put(c.Key, after); err != nil {
		return err
	}
	v.seen = c.Revision
	var e any
	switch i, found := v.search(c.Key); {
	case found && before == nil:
		e = event.CreateEvent{Object: v.objects[i]}
	case found:
		e = event.UpdateEvent{ObjectOld: before, ObjectNew: v.objects[i]}
	case before != nil:
		last, err := v.stored(c.New)
		if err != nil {
			return err
		}
		e = event.DeleteEvent{Object: last}
	default:
		return nil
	}
	v.announce(e)
	return nil
}

func (v *view) announce(e any) {
	for _, s := range v.subscriptions {
		s.events = append(s.events, e)
	}
}

// await advances the view to the given revision, so that a read includes the process's own writes.
func (v *view) await(revision int64) error {
	for v.behind() && v.seen < revision {
		if err := v.advance(); err != nil {
			return err
		}
	}
	if v.seen < revision && (!v.frozenUntil.IsZero() || v.unreachable()) {
		return fmt.Errorf("%w: %s", process.ErrBehind, v.gvk.Kind)
	}
	return nil
}

func (v *view) wrote(key types.NamespacedName, revision int64) {
	v.ownWrites[key] = max(v.ownWrites[key], revision)
	v.lastOwnWrite = max(v.lastOwnWrite, revision)
}

func (v *view) version() string { return strconv.FormatInt(v.seen, 10) }
