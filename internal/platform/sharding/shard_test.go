package sharding

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/sharding"
)

// Rule: namespace-has-one-shard.
func TestEveryNamespaceIsInExactlyOneShard(t *testing.T) {
	for count := 1; count <= MaxShards; count++ {
		for i := range 200 {
			namespace := fmt.Sprintf("team-%d", i)
			owners := 0
			for index := range count {
				if (Shard{Index: index, Count: count}).Owns(namespace) {
					owners++
				}
			}
			if owners != 1 {
				t.Fatalf("%s is in %d of %d shards", namespace, owners, count)
			}
		}
	}
}

// Rule: namespace-has-one-shard.
func TestTheShardOfANamespaceNeverChanges(t *testing.T) {
	var got []int
	for _, namespace := range []string{"default", "kube-system", "team-a", "team-b", "shoot--core--eu1", "x"} {
		got = append(got, Index(namespace, 4))
	}
	if want := "[3 3 3 0 1 0]"; fmt.Sprint(got) != want {
		t.Errorf("the shards are %v, want %s as in every earlier version", got, want)
	}
}

func TestShardsHaveSimilarSizes(t *testing.T) {
	for name, format := range map[string]string{
		"numbered": "fleet-%03d", "in the middle": "shoot--%d--workers", "numbers only": "%d",
		"long": strings.Repeat("a", 50) + "-%d",
	} {
		t.Run(name, func(t *testing.T) {
			const namespaces, count = 4000, 4
			sizes := [count]int{}
			for i := range namespaces {
				sizes[Index(fmt.Sprintf(format, i), count)]++
			}
			for index, size := range sizes {
				// The standard deviation is 27.
				if size < namespaces/count-120 || size > namespaces/count+120 {
					t.Errorf("shard %d has %d of %d namespaces", index, size, namespaces)
				}
			}
		})
	}
}

// Similar names share a shard of the API server, so Machinist does not use ListOptions.ShardSelector. If this test
// fails with a new version of Kubernetes, reconsider that decision.
func TestTheAPIServersHashKeepsSimilarNamesTogether(t *testing.T) {
	theirs, ours := map[string]int{}, map[int]int{}
	for c := 'a'; c <= 'z'; c++ {
		namespace := fmt.Sprintf("team-%c", c)
		// With 4, 8 or 16 ranges of equal size, the first hexadecimal digit of a hash determines its range.
		theirs[sharding.HashField(namespace)[:1]]++
		ours[Index(namespace, 4)]++
	}
	if len(theirs) != 1 {
		t.Errorf("26 namespaces are in %d of 16 ranges: %v", len(theirs), theirs)
	}
	if len(ours) != 4 {
		t.Errorf("26 namespaces are in %d of 4 shards: %v", len(ours), ours)
	}
}

func TestASingleShardContainsEverything(t *testing.T) {
	for _, s := range []Shard{{}, {Count: 1}} {
		if !s.IsUndivided() || !s.Owns("any") || s.String() != "all" {
			t.Errorf("%+v is %s", s, s)
		}
	}
	if s := (Shard{Index: 2, Count: 4}); s.IsUndivided() || s.String() != "2 of 4" || !s.Owns("") {
		t.Errorf("%+v is %s", s, s)
	}
}
