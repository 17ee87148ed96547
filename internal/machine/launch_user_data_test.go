package machine

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap"
)

func (w *world) userDataOf(name string) []byte {
	w.t.Helper()
	w.reconcile(name)
	live := w.cloud.LiveInstances()
	if len(live) != 1 {
		w.t.Fatalf("%d instances", len(live))
	}
	return []byte(live[0].UserData)
}

// Rules: user-data-one-pass, token-only-on-request.
func TestPlaceholderWithoutAValueLeavesNoToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken+" <<KUBELET_VERSION>>")
	w.createMachine("m")
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionLaunched, metav1.ConditionFalse, v1beta1.ReasonInvalidConfiguration)
	if n := len(w.tokens()); n != 0 {
		t.Errorf("a machine without an instance has %d tokens", n)
	}
}

// Rule: encoded-user-data-is-rendered.
func TestCompressedUserDataIsRendered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	packed := bootstrap.Compress([]byte(joinsWithToken))
	secret := w.secret("small-user-data", "userData", "")
	secret.StringData, secret.Data = nil, map[string][]byte{"userData": packed}
	w.create(secret)
	w.create(w.classWith("packed", func(s *v1beta1.MachineClassSpec) {
		s.UserDataRef = &v1beta1.UserDataRef{Name: "small-user-data"}
	}))
	w.createMachine("m", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "packed" })
	got := decompress(t, w.userDataOf("m"))
	if n := len(w.tokens()); n != 1 || !strings.Contains(got, "as m with ") || strings.Contains(got, "<<") {
		t.Errorf("%d tokens, user data %q", n, got)
	}
}

// Rule: user-data-is-compressed-on-request.
func TestUserDataIsCompressedOnRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	w.create(w.classWith("packing", func(s *v1beta1.MachineClassSpec) {
		s.UserDataRef = &v1beta1.UserDataRef{Name: "small-user-data", Compress: v1beta1.UserDataGzip}
	}))
	w.createMachine("m", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "packing" })
	if got := decompress(t, w.userDataOf("m")); !strings.Contains(got, "as m with ") {
		t.Errorf("user data %q", got)
	}
}

func (w *world) classWith(name string, change func(*v1beta1.MachineClassSpec)) *v1beta1.MachineClass {
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name,
		Finalizers: []string{v1beta1.InUseFinalizer}}}
	class.Spec.Provider, class.Spec.ProviderSpec = w.cloud.ProviderName, &runtime.RawExtension{Raw: []byte(`{"kind":"Fake"}`)}
	change(&class.Spec)
	return class
}

func decompress(t *testing.T, data []byte) string {
	t.Helper()
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("%v: %q", err, data)
	}
	out, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
