package process

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Rule: cluster-id-recorded.
func TestAProcessWithoutInstancesRecordsNoClusterID(t *testing.T) {
	c, o := testConfig(t), testOptions()
	o.NoClusterID = true
	p := start(t, c, o, nil)
	p.elected()
	p.probeReports("/readyz?verbose", http.StatusOK, "cluster ID: not needed")
	_, err := clientset(t, planes.control.Config()).CoreV1().ConfigMaps(c.LeaderElectionNamespace).Get(t.Context(),
		IdentityRecord, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("get the record: %v, want not found", err)
	}
}

func TestOnlySelectedObjectsAreCached(t *testing.T) {
	c, o := testConfig(t), testOptions()
	selector, err := labels.Parse("machinist.dev/installed-by")
	if err != nil {
		t.Fatal(err)
	}
	pod := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	o.ControlKinds = append(o.ControlKinds, Kind{Object: pod, Transform: TransformMetadata, Labels: selector})
	pods := clientset(t, planes.control.Config()).CoreV1().Pods(c.LeaderElectionNamespace)
	for name, set := range map[string]map[string]string{"ours": {"machinist.dev/installed-by": "sim"}, "theirs": nil} {
		if _, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "i"}}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, c, o, nil)
	p.elected()
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	if err := p.Control().Client.List(t.Context(), list, client.InNamespace(c.LeaderElectionNamespace)); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != "ours" {
		t.Errorf("the cache contains %v", list.Items)
	}
}
