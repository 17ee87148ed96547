package apiserver

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

const namespace = "fleet"

var epoch = time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1beta1.AddToScheme(s))
	return s
}

type testServer struct {
	*Server
	client.Client
	now time.Time
}

func newTestServer() *testServer {
	w := &testServer{now: epoch}
	w.Server = New(scheme(), func() time.Time { return w.now })
	w.Client = w.Server.Client("test")
	return w
}

func (w *testServer) must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func reload[T client.Object](t testing.TB, w *testServer, o T) T {
	t.Helper()
	w.must(t, w.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	return o
}

func machine(name string) *v1beta1.Machine {
	return &v1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "a"}},
		Spec:       v1beta1.MachineSpec{Provider: "sim", ProviderSpec: &runtime.RawExtension{Raw: []byte(`{"a":1}`)}},
	}
}

func setRunning(m *v1beta1.Machine) {
	m.Status = v1beta1.MachineStatus{
		ObservedGeneration: m.Generation, Phase: v1beta1.MachineRunning,
		NodeRef:   &v1beta1.NodeRef{Name: m.Name, UID: "node-uid"},
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
		Instance:  &v1beta1.InstanceStatus{State: v1beta1.InstanceRunning, Zone: "a", Provider: "sim"},
	}
	for _, kind := range []string{"Launched", "Registered", "NodeHealthy", "UpToDate", "Ready"} {
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue,
			Reason: "AllWell", LastTransitionTime: metav1.NewTime(epoch), ObservedGeneration: m.Generation})
	}
}
