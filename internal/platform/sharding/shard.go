package sharding

import (
	"fmt"
	"hash/fnv"
	"math/bits"
)

// Most is the greatest number of shards.
const Most = 64

// Shard is one of several equal parts of all namespaces. The zero value is all of them.
type Shard struct {
	// Index counts from 0 to Count-1.
	Index int
	// Count is how many shards there are; 0 and 1 mean that there is one process for everything.
	Count int
}

// All reports whether the shard has all namespaces.
func (s Shard) All() bool { return s.Count <= 1 }

// Owns reports whether a namespace is in the shard. What has no namespace is in every shard.
func (s Shard) Owns(namespace string) bool {
	return s.All() || namespace == "" || Of(namespace, s.Count) == s.Index
}

// String names the shard for people.
func (s Shard) String() string {
	if s.All() {
		return "all"
	}
	return fmt.Sprintf("%d of %d", s.Index, s.Count)
}

// Of returns the index of the shard that a namespace is in, of so many. It must never change: processes of two
// versions side by side divide the namespaces alike.
func Of(namespace string, count int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(namespace))
	index, _ := bits.Mul64(mixed(h.Sum64()), uint64(count))
	return int(index)
}

// mixed lets every bit of a hash depend on every other: the last characters of a name hardly change the first bits of
// FNV-1a, and it is those that the index comes from. It is the end of MurmurHash3.
func mixed(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Group names all shards together: it is the holder of the lease that they have in common. Processes that divide the
// namespaces in another way are another group.
func (s Shard) Group() string { return fmt.Sprintf("%d-shards", s.Count) }

// LeaseName returns the name of the lease of the shard alone, by that of a process without shards.
func (s Shard) LeaseName(name string) string {
	if s.All() {
		return name
	}
	return fmt.Sprintf("%s-shard-%d", name, s.Index)
}
