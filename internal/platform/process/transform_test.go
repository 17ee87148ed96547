package process

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"machinist.dev/machinist/api/v1beta1"
)

func testNode(heartbeat time.Time) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "node", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", Time: &metav1.Time{Time: heartbeat}}},
		},
		Spec: corev1.NodeSpec{ProviderID: "sim://1", Taints: []corev1.Taint{{Key: "t"}}, Unschedulable: true,
			PodCIDR: "10.0.0.0/24"},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue,
				LastHeartbeatTime: metav1.Time{Time: heartbeat}, LastTransitionTime: metav1.Unix(1, 0),
			}},
			Images:          []corev1.ContainerImage{{Names: []string{"image"}}},
			VolumesInUse:    []corev1.UniqueVolumeName{"v"},
			VolumesAttached: []corev1.AttachedVolume{{Name: "v"}},
			NodeInfo:        corev1.NodeSystemInfo{KubeletVersion: "v1", BootID: "1", OSImage: "os"},
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
			Capacity:        corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		},
	}
}

// Rule: heartbeats-not-cached.
func TestAHeartbeatDoesNotChangeTheCachedNode(t *testing.T) {
	first, err := TransformNode(testNode(time.Unix(100, 0)))
	if err != nil {
		t.Fatal(err)
	}
	second, err := TransformNode(testNode(time.Unix(200, 0)))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(first, second); d != "" {
		t.Errorf("a heartbeat changed the cached Node:\n%s", d)
	}
	want := testNode(time.Time{})
	want.ManagedFields, want.Status.Images, want.Status.VolumesInUse = nil, nil, nil
	want.Spec.PodCIDR, want.Status.NodeInfo.OSImage, want.Status.Addresses, want.Status.Capacity = "", "", nil, nil
	want.Status.Conditions[0].LastHeartbeatTime = metav1.Time{}
	if d := cmp.Diff(want, first); d != "" {
		t.Errorf("cached Node (-want +got):\n%s", d)
	}
}

func TestMachinesOfASetShareEqualParts(t *testing.T) {
	decoded := func() *v1beta1.Machine {
		const text = `{"metadata":{"namespace":"ns","name":"m","managedFields":[{"manager":"x"}],"labels":{"pool":"a"},"annotations":{"note":"own","machinist.dev/last-applied-template":"{}"},
			"finalizers":["f"],"ownerReferences":[
				{"apiVersion":"v","kind":"MachineSet","name":"set","uid":"u","controller":true}]},
			"spec":{"provider":"sim","version":"v1","classRef":{"name":"small"},"node":{"labels":{"zone":"b"}}},
			"status":{"conditions":[{"type":"Ready","status":"True","reason":"MachineReady","message":"its own"}]}}`
		m := &v1beta1.Machine{}
		if err := json.Unmarshal([]byte(text), m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	one, another, odd, loose, want := decoded(), decoded(), decoded(), decoded(), decoded()
	odd.Labels["pool"], odd.Spec.Node.Labels["zone"], odd.OwnerReferences[0].Name = "c", "d", "renamed"
	odd.Spec.ClassRef.Name, odd.Status.Conditions[0].Reason = "large", "Other"
	wantOdd := odd.DeepCopy()
	loose.OwnerReferences = nil
	transform := NewTransform()
	for _, m := range []*v1beta1.Machine{one, another, odd, loose} {
		if got, err := transform(m); err != nil || got != m {
			t.Fatalf("got %v, %v", got, err)
		}
	}
	want.ManagedFields, wantOdd.ManagedFields = nil, nil
	if d := cmp.Diff(want, one); d != "" {
		t.Errorf("cached Machine (-want +got):\n%s", d)
	}
	if d := cmp.Diff(wantOdd, odd); d != "" {
		t.Errorf("cached Machine that differs from the others of its set (-want +got):\n%s", d)
	}
	shared := func(a, b *v1beta1.Machine) []bool {
		address := func(o any) uintptr { return reflect.ValueOf(o).Pointer() }
		return []bool{
			address(a.Labels) == address(b.Labels), address(a.Annotations) == address(b.Annotations),
			address(a.OwnerReferences) == address(b.OwnerReferences), address(a.Finalizers) == address(b.Finalizers),
			a.Spec.ClassRef == b.Spec.ClassRef, address(a.Spec.Node.Labels) == address(b.Spec.Node.Labels),
			unsafe.StringData(a.Status.Conditions[0].Reason) == unsafe.StringData(b.Status.Conditions[0].Reason),
		}
	}
	if got := shared(one, another); slices.Contains(got, false) {
		t.Errorf("two machines of a set share labels, annotations, owners, finalizers, class, node labels, reason: %t", got)
	}
	if got := shared(one, loose)[0]; got {
		t.Error("a machine without a set shares its labels")
	}
}

// Rule: secrets-cached-as-metadata.
func TestTransformMetadataDropsAnnotationsAndManagedFields(t *testing.T) {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "s", Labels: map[string]string{"a": "b"},
		Annotations:   map[string]string{corev1.LastAppliedConfigAnnotation: "data"},
		ManagedFields: []metav1.ManagedFieldsEntry{{}},
	}}
	got, err := TransformMetadata(object)
	if err != nil {
		t.Fatal(err)
	}
	want := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "s", Labels: map[string]string{"a": "b"}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("cached (-want +got):\n%s", d)
	}
}

func TestTransformsDoNotChangeTombstones(t *testing.T) {
	tombstone := cache.DeletedFinalStateUnknown{Key: "ns/name"}
	for name, transform := range map[string]cache.TransformFunc{"default": NewTransform(), "node": TransformNode,
		"metadata": TransformMetadata} {
		if got, err := transform(tombstone); err != nil || got != tombstone {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
