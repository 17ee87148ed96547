package integration

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/env"
)

const (
	available   = v1beta1.ConditionAvailable
	progressing = v1beta1.ConditionProgressing
	degraded    = v1beta1.ConditionDegraded
	yes, no     = metav1.ConditionTrue, metav1.ConditionFalse
	process     = "machinist-provider-acme"
)

// Rules: conditions-say-what-runs, nothing-written-when-as-desired.
func TestProviderIsInstalledOnce(t *testing.T) {
	w := newTestInstaller(t)
	w.provider("acme", nil)
	w.awaitCondition("acme", progressing, yes, v1beta1.ReasonRollingOut)
	w.simulateRollout(process)
	w.awaitCondition("acme", available, yes, v1beta1.ReasonMinimumReplicasAvailable)
	p := w.awaitCondition("acme", progressing, no, v1beta1.ReasonRolloutComplete)
	if p.Status.Process != process || p.Status.Version != "v1" || p.Status.DesiredVersion != "v1" ||
		p.Status.Type != "acme" || len(p.Status.Installed) != 6 {
		t.Errorf("the status is %+v", p.Status)
	}
	d := w.deployment(process)
	if len(d.OwnerReferences) != 1 || d.OwnerReferences[0].UID != p.UID ||
		d.Spec.Template.Labels[v1beta1.LabelInstalledBy] != "acme" {
		t.Errorf("the Deployment is %+v", d.ObjectMeta)
	}

	// Six objects were applied once, and later passes wrote nothing. The next two changes each cause a pass. The result
	// of the second change shows that both passes have run.
	if n := w.writes.Load(); n != 6 {
		t.Errorf("%d writes for 6 objects", n)
	}
	d.Annotations["example.com/touched"] = "yes"
	w.must("touch the Deployment", w.Update(t.Context(), d))
	w.patchSpec("acme", `{"spec":{"extraArgs":["--log-level=debug"]}}`)
	env.Await(t, w.WithWatch, &appsv1.DeploymentList{}, "the flag", func(l *appsv1.DeploymentList) (bool, string) {
		args := l.Items[0].Spec.Template.Spec.Containers[0].Args
		return len(args) == 1, fmt.Sprint(args)
	}, client.InNamespace(w.namespace))
	p = w.awaitCondition("acme", progressing, yes, v1beta1.ReasonRollingOut)
	if n := w.writes.Load(); n != 7 {
		t.Errorf("%d writes after a change of one object, want 7", n)
	}
	if p.Status.Version != "v1" {
		t.Errorf("the running version is %q", p.Status.Version)
	}
}

// Rule: changes-by-hand-are-undone.
func TestManualChangesAreReverted(t *testing.T) {
	w := newTestInstaller(t)
	w.provider("acme", nil)
	w.awaitCondition("acme", progressing, yes, v1beta1.ReasonRollingOut)
	d := w.deployment(process)
	d.Spec.Template.Spec.Containers[0].Image = "registry.example.com/evil"
	w.must("change the image", w.Update(t.Context(), d, client.FieldOwner("another")))
	env.Await(t, w.WithWatch, &appsv1.DeploymentList{}, "the image", func(l *appsv1.DeploymentList) (bool, string) {
		image := l.Items[0].Spec.Template.Spec.Containers[0].Image
		return image == "registry.example.com/acme:v1", image
	}, client.InNamespace(w.namespace))

	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: process}}
	w.must("delete the role", w.Delete(t.Context(), role))
	env.Await(t, w.WithWatch, &rbacv1.ClusterRoleList{}, "the role", func(l *rbacv1.ClusterRoleList) (bool, string) {
		return len(l.Items) == 1, fmt.Sprint(len(l.Items))
	}, client.HasLabels{v1beta1.LabelInstalledBy})
}

// Rule: pruned-when-not-rendered.
func TestObjectsThatAreNoLongerRenderedAreRemoved(t *testing.T) {
	w := newTestInstaller(t)
	w.provider("acme", nil)
	w.awaitCondition("acme", progressing, yes, v1beta1.ReasonRollingOut)
	w.withoutService.Store(true)
	w.patchSpec("acme", `{"spec":{"image":{"tag":"v2"}}}`)
	p := w.awaitCondition("acme", progressing, yes, v1beta1.ReasonRollingOut)
	if len(p.Status.Installed) != 5 || p.Status.DesiredVersion != "v2" {
		t.Errorf("the status is %+v", p.Status)
	}
	if !w.isGone(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: process}}) {
		t.Error("the Service still exists")
	}
	if w.isGone(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: process}}) {
		t.Error("the ServiceAccount is gone")
	}
}

// Rule: objects-of-others-untouched.
func TestObjectOfAnotherOwnerIsReportedAndKept(t *testing.T) {
	w := newTestInstaller(t)
	ofHelm := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: process,
		Annotations: map[string]string{"meta.helm.sh/release-name": "acme", "meta.helm.sh/release-namespace": w.namespace}}}
	w.must("create the object of Helm", w.Create(t.Context(), ofHelm))
	version := ofHelm.ResourceVersion
	w.provider("acme", nil)
	p := w.awaitCondition("acme", degraded, yes, v1beta1.ReasonObjectConflict)
	w.awaitCondition("acme", available, no, v1beta1.ReasonNotInstalled)
	if message := messageOf(p, degraded); !strings.Contains(message, "of the helm release "+w.namespace+"/acme") {
		t.Errorf("the message is %q", message)
	}
	w.must("read the object of Helm", w.Get(t.Context(), client.ObjectKeyFromObject(ofHelm), ofHelm))
	if ofHelm.ResourceVersion != version || w.writes.Load() != 0 || len(p.Status.Installed) != 0 {
		t.Errorf("%d writes, version %s became %s", w.writes.Load(), version, ofHelm.ResourceVersion)
	}
	w.must("delete the object of Helm", w.Delete(t.Context(), ofHelm))
	w.patchSpec("acme", `{"spec":{"replicas":1}}`)
	w.awaitCondition("acme", degraded, no, v1beta1.ReasonAsDesired)
}

// Rules: unknown-type-names-known-ones, spec-becomes-chart-values.
func TestInvalidSpecMakesProviderDegraded(t *testing.T) {
	w := newTestInstaller(t)
	w.provider("typo", func(s *v1beta1.ProviderSpec) { s.Type, s.Image.Repository = "azur", "" })
	p := w.awaitCondition("typo", degraded, yes, v1beta1.ReasonUnknownType)
	if message := messageOf(p, degraded); !strings.Contains(message, `"azur"`) || !strings.Contains(message, "azure, libvirt, openstack, sim") {
		t.Errorf("the message is %q", message)
	}
	w.awaitCondition("typo", progressing, no, v1beta1.ReasonUnknownType)

	w.provider("values", func(s *v1beta1.ProviderSpec) {
		s.Values = &runtime.RawExtension{Raw: []byte(`{"bad":"value"}`)}
	})
	p = w.awaitCondition("values", degraded, yes, v1beta1.ReasonInvalidValues)
	if message := messageOf(p, degraded); !strings.Contains(message, `bad: "value" is not allowed`) {
		t.Errorf("the message is %q", message)
	}
	w.patchSpec("values", `{"spec":{"values":null}}`)
	w.awaitCondition("values", degraded, no, v1beta1.ReasonAsDesired)
}

// Rule: refused-objects-are-reported.
func TestRefusedObjectIsReported(t *testing.T) {
	w := newTestInstaller(t)
	w.provider("acme", func(s *v1beta1.ProviderSpec) { s.Values = raw(`{"port":1e6}`) })
	p := w.awaitCondition("acme", degraded, yes, v1beta1.ReasonApplyFailed)
	if message := messageOf(p, degraded); !strings.Contains(message, "apply Service "+w.namespace+"/"+process) ||
		!strings.Contains(message, "spec.ports[0].port") {
		t.Errorf("the message is %q", message)
	}
	w.patchSpec("acme", `{"spec":{"values":null}}`)
	w.awaitCondition("acme", degraded, no, v1beta1.ReasonAsDesired)
	w.deployment(process)
}

// Rule: missing-secret-is-named.
func TestMissingSecretIsReported(t *testing.T) {
	w := newTestInstaller(t)
	w.provider("acme", func(s *v1beta1.ProviderSpec) {
		s.Target.KubeconfigSecretRef = &v1beta1.KubeconfigRef{Name: "target"}
	})
	p := w.awaitCondition("acme", degraded, yes, v1beta1.ReasonSecretNotFound)
	want := "Secret " + w.namespace + "/target of spec.target.kubeconfigSecretRef does not exist."
	if message := messageOf(p, degraded); !strings.HasPrefix(message, want) {
		t.Errorf("the message is %q", message)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "target"},
		Data: map[string][]byte{"config": []byte("x")}}
	w.must("create the Secret", w.Create(t.Context(), secret))
	w.patchSpec("acme", `{"spec":{"replicas":1}}`)
	p = w.awaitCondition("acme", degraded, yes, v1beta1.ReasonSecretNotFound)
	if message := messageOf(p, degraded); !strings.Contains(message, "has no key kubeconfig") {
		t.Errorf("the message is %q", message)
	}
	w.patchSpec("acme", `{"spec":{"target":{"kubeconfigSecretRef":{"key":"config"}}}}`)
	w.awaitCondition("acme", degraded, no, v1beta1.ReasonAsDesired)
}

// Rule: kubelet-reason-is-reported.
func TestPodEventReportsImagePullFailure(t *testing.T) {
	w := newTestInstaller(t)
	w.provider("acme", nil)
	w.awaitCondition("acme", progressing, yes, v1beta1.ReasonRollingOut)
	pod := w.pod(w.deployment(process), process+"-new")
	const message = `Back-off pulling image "registry.example.com/acme:v1": ErrImagePull: not found`
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Image: "i", ImageID: "",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: message}}}}
	w.must("report the pod", w.Status().Update(t.Context(), pod))
	p := w.awaitCondition("acme", progressing, no, "ImagePullBackOff")
	if got := messageOf(p, progressing); !strings.Contains(got, message) {
		t.Errorf("the message is %q", got)
	}
	w.awaitCondition("acme", degraded, yes, "ImagePullBackOff")
}

func messageOf(p *v1beta1.Provider, of string) string {
	for _, c := range p.Status.Conditions {
		if c.Type == of {
			return c.Message
		}
	}
	return ""
}
