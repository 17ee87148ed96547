package objectstate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func object(uid types.UID, created int64) client.Object {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "o", UID: uid,
		CreationTimestamp: metav1.NewTime(time.Unix(created, 0))}}
}

func TestStore(t *testing.T) {
	t.Parallel()
	former, successor := object("former", 1), object("successor", 2)
	key := client.ObjectKeyFromObject(former)
	set := func(n int) func(*int) { return func(v *int) { *v = n } }
	for name, test := range map[string]struct {
		do                      func(*Store[int])
		former, successor, size int
	}{
		"empty":                     {func(*Store[int]) {}, 0, 0, 0},
		"updated":                   {func(s *Store[int]) { s.Update(former, set(3)) }, 3, 0, 1},
		"updated to zero":           {func(s *Store[int]) { s.Update(former, set(3)); s.Update(former, set(0)) }, 0, 0, 0},
		"successor replaces former": {func(s *Store[int]) { s.Update(former, set(3)); s.Update(successor, set(4)) }, 0, 4, 1},
		"former leaves successor":   {func(s *Store[int]) { s.Update(successor, set(4)); s.Update(former, set(3)) }, 0, 4, 1},
		"known":                     {func(s *Store[int]) { s.Update(successor, set(4)); s.UpdateKnown(key, set(5)) }, 0, 5, 1},
		"unknown":                   {func(s *Store[int]) { s.UpdateKnown(key, set(5)) }, 0, 0, 0},
		"forgotten":                 {func(s *Store[int]) { s.Update(former, set(3)); s.Forget(key) }, 0, 0, 0},
	} {
		s := &Store[int]{}
		test.do(s)
		if a, b, n := s.Get(former), s.Get(successor), s.Len(); a != test.former || b != test.successor || n != test.size {
			t.Errorf("%s: got %d, %d and %d objects, want %d, %d and %d", name, a, b, n, test.former, test.successor, test.size)
		}
	}
}
