package sharding

import (
	"fmt"
	"hash/fnv"
	"math/bits"
)

// Most limits the number of shards of one installation.
const Most = 64

// Shard is one of several equal parts of all namespaces. The zero value contains all namespaces.
type Shard struct {
	// Index counts from 0 to Count-1.
	Index int
	// Count is the number of shards. With 0 or 1, one process serves everything.
	Count int
}

// All returns true if the namespaces are not divided, so that this shard contains every namespace.
func (s Shard) All() bool { return s.Count <= 1 }

// Owns reports whether a namespace is in the shard. Objects without a namespace are in every shard.
func (s Shard) Owns(namespace string) bool {
	return s.All() || namespace == "" || Of(namespace, s.Count) == s.Index
}

// String returns a description of the shard for users.
func (s Shard) String() string {
	if s.All() {
		return "all"
	}
	return fmt.Sprintf("%d of %d", s.Index, s.Count)
}

// Of computes the index of the shard that contains a namespace, from the name and the number of shards. This result
// must never change, because two versions of Machinist may run at the same time.
func Of(namespace string, count int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(namespace))
	index, _ := bits.Mul64(mix(h.Sum64()), uint64(count))
	return int(index)
}

// mix makes every bit of the result depend on every bit of the hash. The first bits of FNV-1a hardly depend on the last
// characters of a name. mix is the finalizer of MurmurHash3.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Group returns the name of the group of all shards. It is the holder of their common Lease. Processes that divide the
// namespaces differently belong to another group.
func (s Shard) Group() string { return fmt.Sprintf("%d-shards", s.Count) }

// LeaseName returns the name of the shard's own Lease. The parameter name is the name of the Lease without shards.
func (s Shard) LeaseName(name string) string {
	if s.All() {
		return name
	}
	return fmt.Sprintf("%s-shard-%d", name, s.Index)
}
