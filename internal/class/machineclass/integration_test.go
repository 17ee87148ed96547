package machineclass

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/env"
)

func isProtected(c *v1beta1.MachineClass) bool { return c != nil && protected(c) }
func isGone(c *v1beta1.MachineClass) bool      { return c == nil }

// Rule: class-validated-on-change.
func TestValidClassReportsItsCapacity(t *testing.T) {
	w := newTestControllers(t)
	w.createSecrets()
	w.createClass("c")
	class := w.awaitReady("c", v1beta1.ReasonValid)
	if cpu := class.Status.Capacity[corev1.ResourceCPU]; cpu.String() != "16" {
		t.Errorf("capacity %v", class.Status.Capacity)
	}
	if want := (v1beta1.NodeInfo{Architecture: "arm64", OperatingSystem: "linux", InstanceType: "large", Region: "r",
		Zone: "z"}); *class.Status.NodeInfo != want {
		t.Errorf("nodeInfo %+v", *class.Status.NodeInfo)
	}
	if class.Status.ObservedGeneration != class.Generation || protected(class) {
		t.Errorf("observed generation %d of %d, finalizers %v", class.Status.ObservedGeneration, class.Generation,
			class.Finalizers)
	}
	// The hint is for the autoscaler and needs no call of the provider.
	w.patchClass("c", `{"spec":{"capacity":{"resources":{"cpu":"8"}}}}`)
	w.awaitClass("c", "to be observed", func(c *v1beta1.MachineClass) bool {
		return c.Status.ObservedGeneration == class.Generation+1
	})
	if n := w.driver.calls(); n != 1 {
		t.Errorf("the provider was called %d times", n)
	}
}

// Rule: class-validated-on-change.
func TestClassWaitsForItsSecrets(t *testing.T) {
	w := newTestControllers(t)
	w.createClass("c")
	class := w.awaitReady("c", v1beta1.ReasonCredentialsNotFound)
	if m := class.Status.Conditions[0].Message; !strings.Contains(m, `"creds"`) {
		t.Errorf("message %q does not name the Secret", m)
	}
	w.createSecret("creds", "token", "t")
	w.awaitReady("c", v1beta1.ReasonUserDataNotFound)
	w.createSecret("boot", "other", "x")
	w.awaitClass("c", "to name the key", func(c *v1beta1.MachineClass) bool {
		return strings.Contains(c.Status.Conditions[0].Message, `"userData"`)
	})
	if n := w.driver.calls(); n != 0 {
		t.Errorf("the provider was called %d times although Secrets are missing", n)
	}
	w.patchSecret("boot", `{"stringData":{"userData":"#cloud-config"}}`)
	w.awaitReady("c", v1beta1.ReasonValid)
	for _, name := range []string{"creds", "boot"} {
		w.awaitSecret(name, "to be protected", func(s *corev1.Secret) bool { return s != nil && protected(s) })
	}
}

// Rule: class-validated-on-change.
func TestRejectionNamesTheFieldInOneEvent(t *testing.T) {
	w := newTestControllers(t)
	w.driver.validate = func(provider.Class) error { return provider.InvalidField("disk.sizeGiB", "must be at least 30") }
	w.createSecrets()
	w.createClass("c")
	class := w.awaitReady("c", v1beta1.ReasonInvalidProviderSpec)
	if m := class.Status.Conditions[0].Message; !strings.Contains(m, "providerSpec.disk.sizeGiB") {
		t.Errorf("message %q does not name the field", m)
	}
	// Each patch triggers a reconciliation of the class. When the second patch is observed, the first reconciliation
	// has ended.
	for i := range 2 {
		w.patchClass("c", fmt.Sprintf(`{"spec":{"capacity":{"zone":"z-%d"}}}`, i))
		w.awaitClass("c", "to be observed", func(c *v1beta1.MachineClass) bool {
			return c.Status.ObservedGeneration == class.Generation+int64(i)+1
		})
	}
	if n := w.eventsOf(v1beta1.ReasonInvalidProviderSpec); n != 1 || w.driver.calls() != 0 {
		t.Errorf("%d events, %d calls", n, w.driver.calls())
	}
}

func TestIncompleteCredentialsAreReported(t *testing.T) {
	w := newTestControllers(t)
	w.driver.validate = func(c provider.Class) error {
		if _, ok := c.Credentials.Get("key"); !ok && !c.Credentials.IsEmpty() {
			return provider.Errorf(provider.InvalidArgument, "the credentials have no key %q", "key")
		}
		return nil
	}
	w.createSecrets()
	w.createClass("c")
	class := w.awaitReady("c", v1beta1.ReasonCredentialsNotFound)
	if m := class.Status.Conditions[0].Message; !strings.Contains(m, `"key"`) {
		t.Errorf("message %q", m)
	}
	w.patchSecret("creds", `{"stringData":{"key":"k"}}`)
	w.awaitReady("c", v1beta1.ReasonValid)
}

func TestClassRecoversFromAnOutageOfTheProvider(t *testing.T) {
	w := newTestControllers(t)
	w.driver.capacity = func(provider.Class) (provider.Capacity, error) {
		return provider.Capacity{}, provider.Errorf(provider.Unavailable, "unreachable")
	}
	w.createSecrets()
	w.createClass("c")
	w.awaitReady("c", v1beta1.ReasonProviderUnavailable)
	w.driver.set(func(s *scripted) { s.capacity = nil })
	w.awaitReady("c", v1beta1.ReasonValid)
	if n := w.eventsOf(v1beta1.ReasonValid); n != 1 {
		t.Errorf("%d events of the recovery", n)
	}
}

func TestRotatedCredentialsAreUsedAtOnce(t *testing.T) {
	w := newTestControllers(t)
	w.driver.capacity = func(c provider.Class) (provider.Capacity, error) {
		if token, _ := c.Credentials.Get("token"); !bytes.Equal(token.Reveal(), []byte("good")) {
			return provider.Capacity{}, &provider.Error{Code: provider.Unauthenticated, Message: "no",
				RetryAfter: 10 * env.Patience}
		}
		return large(), nil
	}
	w.createSecrets()
	w.createSecret("new-creds", "token", "good")
	w.createClass("content")
	w.createClass("reference")
	for _, name := range []string{"content", "reference"} {
		w.awaitReady(name, v1beta1.ReasonCredentialsRefused)
	}
	w.patchClass("reference", `{"spec":{"credentialsRef":{"name":"new-creds"}}}`)
	w.awaitReady("reference", v1beta1.ReasonValid)
	w.patchSecret("creds", `{"stringData":{"token":"good"}}`)
	w.awaitReady("content", v1beta1.ReasonValid)
}

// Rule: class-and-secret-protected.
func TestClassInUseExistsUntilItsLastMachineIsGone(t *testing.T) {
	w := newTestControllers(t)
	w.createSecrets()
	w.createClass("c")
	w.createMachine("m-1", "c")
	w.createMachine("m-2", "c")
	w.awaitClass("c", "to be protected", isProtected)
	w.awaitSecret("creds", "to be protected", func(s *corev1.Secret) bool { return s != nil && protected(s) })
	w.remove(&v1beta1.MachineClass{}, "c")
	w.awaitClass("c", "to report its Machines", func(c *v1beta1.MachineClass) bool {
		deleting := meta.FindStatusCondition(c.Status.Conditions, v1beta1.ConditionDeleting)
		return deleting != nil && deleting.Status == metav1.ConditionTrue &&
			deleting.Reason == v1beta1.ReasonDeletionStarted &&
			strings.Contains(deleting.Message, "2 Machines")
	})
	if n := w.eventsOf(v1beta1.ReasonDeletionStarted); n != 1 {
		t.Errorf("%d events", n)
	}
	w.remove(&corev1.Secret{}, "creds")
	w.remove(&v1beta1.Machine{}, "m-1")
	env.Await(t, w.WithWatch, &v1beta1.MachineList{}, "one Machine to be left",
		func(l *v1beta1.MachineList) (bool, string) {
			return len(l.Items) == 1, fmt.Sprint(len(l.Items))
		}, client.InNamespace(w.ns))
	if !w.secretProtected("creds") {
		t.Error("the credentials were released before the class")
	}
	w.awaitClass("c", "to be protected for the second Machine", isProtected)
	w.remove(&v1beta1.Machine{}, "m-2")
	w.awaitClass("c", "to be gone", isGone)
	w.awaitSecret("creds", "to be gone", func(s *corev1.Secret) bool { return s == nil })
	w.awaitSecret("boot", "to be released", func(s *corev1.Secret) bool { return s != nil && !protected(s) })
}

func TestMachineWithAnotherClassReleasesTheOldOne(t *testing.T) {
	w := newTestControllers(t)
	w.createSecrets()
	w.createClass("old")
	w.createClass("new")
	w.createMachine("m", "old")
	w.awaitClass("old", "to be protected", isProtected)
	machine := &v1beta1.Machine{ObjectMeta: w.meta("m")}
	if err := w.Patch(t.Context(), machine, client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"classRef":{"name":"new"}}}`))); err != nil {
		t.Fatal(err)
	}
	w.awaitClass("new", "to be protected", isProtected)
	w.remove(&v1beta1.MachineClass{}, "old")
	w.awaitClass("old", "to be gone", isGone)
}

func TestRemovedFinalizerIsAddedAgain(t *testing.T) {
	w := newTestControllers(t)
	// The class must not refer to Secrets, because events of Secrets would also trigger the class.
	w.createClass("c", func(c *v1beta1.MachineClass) { c.Spec.CredentialsRef, c.Spec.UserDataRef = nil, nil })
	w.awaitReady("c", v1beta1.ReasonValid)
	w.createMachine("m", "c")
	w.awaitClass("c", "to be protected", isProtected)
	w.patchClass("c", `{"metadata":{"finalizers":null}}`)
	w.awaitClass("c", "to be protected again", isProtected)

	w.createSecrets()
	w.createClass("with-secrets")
	w.awaitSecret("creds", "to be protected", func(s *corev1.Secret) bool { return s != nil && protected(s) })
	w.patchSecret("creds", `{"metadata":{"finalizers":null}}`)
	w.awaitSecret("creds", "to be protected again", func(s *corev1.Secret) bool { return s != nil && protected(s) })
}

// Rule: class-and-secret-protected.
func TestSecretIsProtectedWhileAClassRefersToIt(t *testing.T) {
	w := newTestControllers(t)
	w.createSecrets()
	w.createSecret("new-creds", "token", "t")
	w.createSecret("unrelated", "token", "t")
	w.createClass("c")
	isProtected := func(s *corev1.Secret) bool { return s != nil && protected(s) }
	isReleased := func(s *corev1.Secret) bool { return s != nil && !protected(s) }
	w.awaitSecret("creds", "to be protected", isProtected)
	w.remove(&corev1.Secret{}, "creds")
	w.awaitReady("c", v1beta1.ReasonValid) // A Secret that is being deleted can still be used.
	w.patchClass("c", `{"spec":{"credentialsRef":{"name":"new-creds"}}}`)
	w.awaitSecret("new-creds", "to be protected", isProtected)
	w.awaitSecret("creds", "to be gone", func(s *corev1.Secret) bool { return s == nil })
	w.remove(&v1beta1.MachineClass{}, "c")
	for _, name := range []string{"new-creds", "boot"} {
		w.awaitSecret(name, "to be released", isReleased)
	}
	if w.secretProtected("unrelated") {
		t.Error("a Secret without a reference is protected")
	}
}

// Rule: inline-secret-protected.
func TestSecretIsProtectedWhileAnInlineMachineRefersToIt(t *testing.T) {
	w := newTestControllers(t)
	w.createSecrets()
	create := func(name, provider, secret string) {
		w.create(&v1beta1.Machine{ObjectMeta: w.meta(name), Spec: v1beta1.MachineSpec{
			Provider: provider, ProviderSpec: &runtime.RawExtension{Raw: []byte(`{"a":1}`)},
			CredentialsRef: &v1beta1.LocalRef{Name: secret}, UserDataRef: &v1beta1.UserDataRef{Name: "boot"},
		}})
	}
	isProtected := func(s *corev1.Secret) bool { return s != nil && protected(s) }
	create("m-1", w.ns, "creds")
	create("m-2", w.ns, "creds")
	create("early", w.ns, "late")
	w.createSecret("others", "token", "t")
	create("other", "other", "others")
	w.createSecret("late", "token", "t")
	for _, name := range []string{"creds", "boot", "late"} {
		w.awaitSecret(name, "to be protected", isProtected)
	}
	w.remove(&corev1.Secret{}, "creds")
	w.remove(&v1beta1.Machine{}, "m-1")
	w.remove(&v1beta1.Machine{}, "early")
	w.awaitSecret("late", "to be released", func(s *corev1.Secret) bool { return s != nil && !protected(s) })
	if !w.secretProtected("creds") || !w.secretProtected("boot") || w.secretProtected("others") {
		t.Errorf("protected: creds %v, boot %v, Secret of another provider's machine %v; want true, true, false",
			w.secretProtected("creds"), w.secretProtected("boot"), w.secretProtected("others"))
	}
	w.remove(&v1beta1.Machine{}, "m-2")
	w.awaitSecret("creds", "to be gone", func(s *corev1.Secret) bool { return s == nil })
}

func TestClassesOfOtherProvidersAreIgnoredAndTheirSecretsStayProtected(t *testing.T) {
	w := newTestControllers(t)
	w.createSecrets()
	w.createSecret("others", "token", "t")
	w.createClass("other", func(c *v1beta1.MachineClass) { c.Spec.Provider = "other" })
	w.createClass("others-only", func(c *v1beta1.MachineClass) {
		c.Spec.Provider, c.Spec.CredentialsRef = "other", &v1beta1.LocalRef{Name: "others"}
	})
	w.createMachine("m", "other")
	w.createClass("c")
	w.awaitReady("c", v1beta1.ReasonValid)
	w.awaitSecret("creds", "to be protected", func(s *corev1.Secret) bool { return s != nil && protected(s) })
	w.remove(&v1beta1.MachineClass{}, "c")
	w.awaitClass("c", "to be gone", isGone)

	// Deletions are processed in order. So when a second, later class is gone, the deletion of the first was processed.
	w.createSecret("last", "token", "t")
	w.createClass("d", func(c *v1beta1.MachineClass) { c.Spec.CredentialsRef = &v1beta1.LocalRef{Name: "last"} })
	w.awaitSecret("last", "to be protected", func(s *corev1.Secret) bool { return s != nil && protected(s) })
	w.remove(&v1beta1.MachineClass{}, "d")
	w.awaitSecret("last", "to be released", func(s *corev1.Secret) bool { return s != nil && !protected(s) })
	if !w.secretProtected("creds") || w.secretProtected("others") {
		t.Errorf("protected: shared Secret %v, Secret of only the other provider %v; want true, false", w.secretProtected("creds"),
			w.secretProtected("others"))
	}
	other := &v1beta1.MachineClass{}
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "other"}, other); err != nil {
		t.Fatal(err)
	}
	if len(other.Status.Conditions) > 0 || protected(other) {
		t.Errorf("a class of another provider has finalizers %v and status %+v", other.Finalizers, other.Status)
	}
}

func TestNamespaceWithClassesAndMachinesCanBeDeleted(t *testing.T) {
	w := newTestControllers(t)
	w.createSecrets()
	w.createClass("c")
	w.createMachine("m", "c")
	w.awaitClass("c", "to be protected", isProtected)
	w.awaitSecret("creds", "to be protected", func(s *corev1.Secret) bool { return s != nil && protected(s) })
	// Delete the Secret before the class and the class before its Machines. The namespace controller may also delete in
	// this order.
	for _, o := range []client.Object{&corev1.Secret{}, &v1beta1.MachineClass{}, &v1beta1.Machine{}} {
		if err := w.DeleteAllOf(t.Context(), o, client.InNamespace(w.ns)); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	env.Await(t, w.WithWatch, &corev1.SecretList{}, "all Secrets to be gone", func(l *corev1.SecretList) (bool, string) {
		return !slices.ContainsFunc(l.Items, func(s corev1.Secret) bool { return s.Name == "creds" || s.Name == "boot" }),
			fmt.Sprint(len(l.Items))
	}, client.InNamespace(w.ns))
	w.awaitClass("c", "to be gone", isGone)
}

// A class may name any Secret of its namespace, even one of another application. Without the label for its use, the
// Secret is neither read nor changed.
//
// Rules: secret-needs-use-label, no-finalizer-without-label.
func TestSecretIsUsedAndProtectedOnlyWithTheLabelForItsUse(t *testing.T) {
	w := newTestControllers(t)
	w.createSecrets()
	for _, name := range []string{"creds", "boot"} {
		w.patchSecret(name, `{"metadata":{"labels":null}}`)
	}
	w.createClass("c")
	class := w.awaitReady("c", v1beta1.ReasonSecretNotLabelled)
	if m := class.Status.Conditions[0].Message; !strings.Contains(m, "kubectl label secret creds --namespace="+
		class.Namespace+" machinist.dev/secret-use=credentials") {
		t.Errorf("message %q does not contain the command that fixes the label", m)
	}
	w.patchSecret("creds", `{"metadata":{"labels":{"machinist.dev/secret-use":"credentials"}}}`)
	w.awaitSecret("creds", "to be protected", func(s *corev1.Secret) bool { return s != nil && protected(s) })
	w.awaitClass("c", "to name the user data", func(c *v1beta1.MachineClass) bool {
		return strings.Contains(c.Status.Conditions[0].Message, "kubectl label secret boot ")
	})
	w.awaitSecret("boot", "to be unprotected", func(s *corev1.Secret) bool { return s != nil && !protected(s) })
	w.patchSecret("boot", `{"metadata":{"labels":{"machinist.dev/secret-use":"user-data"}}}`)
	w.awaitReady("c", v1beta1.ReasonValid)
	w.awaitSecret("boot", "to be protected", func(s *corev1.Secret) bool { return s != nil && protected(s) })
}
