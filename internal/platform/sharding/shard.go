package sharding

import (
	"fmt"
	"hash/fnv"
	"math/bits"
)

// MaxShards is the maximum number of shards of an installation.
const MaxShards = 64

// Shard is one of several equal parts of all namespaces. The zero value contains all namespaces.
type Shard struct {
	// Index counts from 0 to Count-1.
	Index int
	// Count is the number of shards. With 0 or 1, one process serves everything.
	Count int
}

// IsUndivided reports whether the namespaces are not divided, so that this shard contains every namespace.
func (s Shard) IsUndivided() bool { return s.Count <= 1 }

// Owns reports whether a namespace is in the shard. Objects without a namespace are in every shard.
func (s Shard) Owns(namespace string) bool {
	return s.IsUndivided() || namespace == "" || Index(namespace, s.Count) == s.Index
}

// String returns a description of the shard for users.
func (s Shard) String() string {
	if s.IsUndivided() {
		return "all"
	}
	return fmt.Sprintf("%d of %d", s.Index, s.Count)
}

// Index returns the index of the shard that contains the namespace. The index for a name and a number of shards must
// never change, because two versions of Machinist may run at the same time.
func Index(namespace string, count int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(namespace))
	index, _ := bits.Mul64(mix(h.Sum64()), uint64(count))
	return int(index)
}

func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Group returns the name of the group of all shards. This name is the holder of the Lease that all shards have in
// common. Processes that divide the namespaces differently belong to another group.
func (s Shard) Group() string { return fmt.Sprintf("%d-shards", s.Count) }

// LeaseName returns the name of the shard's own Lease. Pass the name that the Lease has in an installation without
// shards.
func (s Shard) LeaseName(name string) string {
	if s.IsUndivided() {
		return name
	}
	return fmt.Sprintf("%s-shard-%d", name, s.Index)
}
