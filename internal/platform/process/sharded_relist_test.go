package process

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

func TestAListForgetsObjectsThatWereDeletedSinceTheLastList(t *testing.T) {
	var present []corev1.Node
	lw := newFilteredListWatch(&toolscache.ListWatch{
		ListFunc: func(metav1.ListOptions) (runtime.Object, error) {
			return &corev1.NodeList{Items: append([]corev1.Node(nil), present...)}, nil
		},
		WatchFunc: func(metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}, func(metav1.Object) bool { return true }, false)
	list := func(names ...string) {
		t.Helper()
		present = nil
		for _, name := range names {
			present = append(present, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list("a", "b")
	list("b", "c")
	if len(lw.passedNames) != 2 || lw.passedNames["a"] {
		t.Errorf("passed contains %v, want b and c", lw.passedNames)
	}
}
