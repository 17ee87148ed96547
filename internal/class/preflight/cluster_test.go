package preflight

import (
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"machinist.dev/machinist/api/v1beta1"
)

func kubeadm() []client.Object {
	pod := func(component string, command ...string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: component,
			Labels: map[string]string{"tier": "control-plane", "component": component}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: component, Command: append([]string{component}, command...)}}}}
	}
	return []client.Object{
		pod("kube-apiserver", "--enable-bootstrap-token-auth=true", "--secure-port=6443"),
		pod("kube-controller-manager", "--controllers=*,bootstrapsigner,tokencleaner", "--cluster-signing-cert-file=/ca.crt"),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"}},
		daemonSet("kube-flannel-ds"),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "control-plane"}},
	}
}

func daemonSet(name string) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}}
}

func clusterOf(t *testing.T, resources []*metav1.APIResourceList, objects ...client.Object) Cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return Cluster{Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(),
		Discovery: &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: resources},
			FakedServerVersion: &version.Info{GitVersion: "v1.37.2"}},
		Now: func() time.Time { return noon }}
}

func edit(objects []client.Object, name string, change func(client.Object)) []client.Object {
	for _, o := range objects {
		if o.GetName() == name {
			change(o)
		}
	}
	return objects
}

// Rule: join-is-checked-beforehand.
func TestTargetFindsProblems(t *testing.T) {
	command := func(args ...string) func(client.Object) {
		return func(o client.Object) { o.(*corev1.Pod).Spec.Containers[0].Command = args }
	}
	request := func(at time.Time, certificate string) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-1"},
			Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName},
			Status: certificatesv1.CertificateSigningRequestStatus{Certificate: []byte(certificate),
				Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved,
					LastUpdateTime: metav1.NewTime(at)}}}}
	}
	for name, c := range map[string]struct {
		objects func() []client.Object
		want    []string
	}{
		"a cluster of kubeadm": {kubeadm, nil},
		"a control plane without pods": {func() []client.Object {
			return slices.DeleteFunc(kubeadm(), func(o client.Object) bool { return strings.HasPrefix(o.GetName(), "kube-") })
		}, nil},
		"bootstrap tokens are disabled": {func() []client.Object {
			return edit(kubeadm(), "kube-apiserver", command("kube-apiserver", "--enable-bootstrap-token-auth=false"))
		}, []string{BootstrapTokensDisabled}},
		"bootstrap tokens are not enabled": {func() []client.Object {
			return edit(kubeadm(), "kube-apiserver", command("kube-apiserver"))
		}, []string{BootstrapTokensDisabled}},
		"there is no signing key": {func() []client.Object {
			return edit(kubeadm(), "kube-controller-manager", command("kube-controller-manager", "--controllers=*"))
		}, []string{NoSigner}},
		"the signer is disabled": {func() []client.Object {
			return edit(kubeadm(), "kube-controller-manager",
				command("kube-controller-manager", "--controllers=*,-csrsigning", "--cluster-signing-cert-file=/ca.crt"))
		}, []string{NoSigner}},
		"a request is not signed": {func() []client.Object { return append(kubeadm(), request(noon.Add(-time.Hour), "")) },
			[]string{NoSigner}},
		"a request was just approved": {func() []client.Object { return append(kubeadm(), request(noon, "")) }, nil},
		"a request is signed":         {func() []client.Object { return append(kubeadm(), request(noon.Add(-time.Hour), "x")) }, nil},
		"no cluster-info": {func() []client.Object {
			return slices.DeleteFunc(kubeadm(), func(o client.Object) bool { return o.GetName() == "cluster-info" })
		}, []string{NoClusterInfo}},
		"two network plugins": {func() []client.Object {
			return append(kubeadm(), daemonSet("cilium"))
		}, []string{TwoNetworkPlugins}},
		"another DaemonSet of one network plugin": {func() []client.Object {
			return append(kubeadm(), daemonSet("cilium-envoy"))
		}, nil},
		"no network plugin": {func() []client.Object {
			flannel := func(o client.Object) bool { return o.GetName() == "kube-flannel-ds" }
			return edit(slices.DeleteFunc(kubeadm(), flannel), "control-plane",
				func(o client.Object) {
					o.(*corev1.Node).Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse,
						Message: "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"}}
				})
		}, []string{NoNetworkPlugin}},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := clusterOf(t, nil, c.objects()...).Target(t.Context())
			if got := reasons(found); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("found %v, want %v: %+v, %v", got, c.want, found, err)
			}
		})
	}
}

func reasons(found []Finding) (all []string) {
	for _, f := range found {
		all = append(all, f.Reason)
	}
	return all
}

// Rule: join-is-checked-beforehand.
func TestWebhooksWithoutReadyEndpointAreFound(t *testing.T) {
	configuration := func(policy admissionregistrationv1.FailurePolicyType, group, resource string) client.Object {
		return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "w"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "w.example.com", FailurePolicy: &policy,
				ClientConfig: admissionregistrationv1.WebhookClientConfig{
					Service: &admissionregistrationv1.ServiceReference{Namespace: "policies", Name: "webhook"}},
				Rules: []admissionregistrationv1.RuleWithOperations{{Rule: admissionregistrationv1.Rule{
					APIGroups: []string{group}, Resources: []string{resource}}}}}}}
	}
	slice := func(ready bool) client.Object {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "policies", Name: "webhook-1",
			Labels: map[string]string{discoveryv1.LabelServiceName: "webhook"}},
			Endpoints: []discoveryv1.Endpoint{{Conditions: discoveryv1.EndpointConditions{Ready: &ready}}}}
	}
	const fail, ignore = admissionregistrationv1.Fail, admissionregistrationv1.Ignore
	for name, c := range map[string]struct {
		objects []client.Object
		found   bool
	}{
		"without an endpoint":   {[]client.Object{configuration(fail, "", "nodes")}, true},
		"endpoint not ready":    {[]client.Object{configuration(fail, "", "nodes"), slice(false)}, true},
		"endpoint ready":        {[]client.Object{configuration(fail, "", "nodes"), slice(true)}, false},
		"policy Ignore":         {[]client.Object{configuration(ignore, "", "nodes")}, false},
		"for other kinds":       {[]client.Object{configuration(fail, "", "configmaps")}, false},
		"for Machinist's kinds": {[]client.Object{configuration(fail, v1beta1.GroupName, "machines")}, true},
		"for all kinds":         {[]client.Object{configuration(fail, "*", "*")}, true},
		"for certificates":      {[]client.Object{configuration(fail, certificatesv1.GroupName, "certificatesigningrequests")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := clusterOf(t, nil, c.objects...).Control(t.Context())
			if err != nil || (len(found) == 1) != c.found || c.found && found[0].Reason != WebhookNotReachable {
				t.Errorf("found %+v, %v", found, err)
			}
		})
	}
}

// Rule: join-is-checked-beforehand.
func TestKindsWithTheSameNamesAreFound(t *testing.T) {
	names := func(group string, all ...string) *metav1.APIResourceList {
		list := &metav1.APIResourceList{GroupVersion: group + "/v1beta1"}
		for _, name := range all {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		return list
	}
	ours := names(v1beta1.GroupName, "machines", "machines/status", "machinesets", "machineclasses")
	found, err := clusterOf(t, []*metav1.APIResourceList{ours, names("apps", "deployments"),
		names("cluster.x-k8s.io", "clusters", "machines", "machines/status", "machinesets")}).Control(t.Context())
	if err != nil || len(found) != 1 || found[0].Reason != NamesCollide || !found[0].Warning ||
		found[0].Message != "The API group cluster.x-k8s.io also has the kinds machines, machinesets." ||
		!strings.Contains(found[0].Fix, "machines.machinist.dev") {
		t.Errorf("found %+v, %v", found, err)
	}
	if found, err := clusterOf(t, []*metav1.APIResourceList{ours}).Control(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("found %+v, %v", found, err)
	}
}
