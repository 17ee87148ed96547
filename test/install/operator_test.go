//go:build e2e && linux

package install

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/realnode"
)

// The operator must install a provider for a Provider object, so that users do not need the chart machinist-provider.
func TestOperatorInstallsProvider(t *testing.T) {
	for _, version := range versions() {
		t.Run("helm"+version, func(t *testing.T) { operatorJourney(t, version) })
	}
}

func operatorJourney(t *testing.T, version string) {
	m := newMachinist(t)
	h := helmOf(t, m.cluster, version)
	begun := time.Now()
	m.installCloud(h)
	core := slices.Concat(coreValues(), []string{"--set=operator.enabled=true"})
	h.run(t, slices.Concat([]string{"install", coreRelease, chart("machinist")}, core)...)
	m.provider("sim", "sim", nil)
	m.fleet("default")
	m.awaitReady("default", fleetSize)
	took := time.Since(begun)
	progress(t, "with the operator, the fleet is Ready %.1f s after the first helm command", took.Seconds())
	if took > fleetDeadline {
		t.Errorf("the fleet was Ready after %s, want at most %s", took.Round(time.Second), fleetDeadline)
	}
	m.awaitCondition("sim", v1beta1.ConditionAvailable, metav1.ConditionTrue, "")
	live, created := m.instances()

	m.killLeader(providerRelease)
	m.wantUntouched("killing the leading pod", live, created)

	// For an unknown type of Provider, the condition must list the known types. For a missing image, the condition must
	// contain the kubelet's error message.
	m.provider("wrong", "nowhere", nil)
	m.awaitCondition("wrong", v1beta1.ConditionDegraded, metav1.ConditionTrue, "sim")
	m.provider("noimage", "other", &v1beta1.ProviderImage{Repository: "machinist-provider-sim", Tag: "v9.9.9"})
	m.awaitCondition("noimage", v1beta1.ConditionProgressing, metav1.ConditionFalse, "v9.9.9")
	m.deleteProvider("wrong")
	m.deleteProvider("noimage")

	// A change of the Provider must restart the pods of the provider process.
	restart := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"extraArgs":["--cloud-endpoint=http://`+cloudRelease+
		`:8080","--log-level=debug"]}}`))
	provider := &v1beta1.Provider{ObjectMeta: metav1.ObjectMeta{Name: "sim"}}
	before := m.readyPods(providerRelease)
	if err := m.api.Patch(t.Context(), provider, restart); err != nil {
		t.Fatal(err)
	}
	m.eventually("all pods of the provider are replaced", func() (bool, string) {
		now := m.readyPods(providerRelease)
		same := slices.ContainsFunc(now, func(p string) bool { return slices.Contains(before, p) })
		return len(now) == len(before) && !same, fmt.Sprint(now)
	})
	m.wantUntouched("a change of the Provider", live, created)

	// The provider must continue to work without the operator. A deleted Provider must remain until its Machines are
	// gone.
	h.run(t, slices.Concat([]string{"upgrade", coreRelease, chart("machinist"), "--wait"}, core,
		[]string{"--set=operator.enabled=false"})...)
	m.wantUntouched("removing the operator", live, created)
	h.run(t, slices.Concat([]string{"upgrade", coreRelease, chart("machinist"), "--wait"}, core)...)
	m.grow("a time without the operator", live, created)
	if err := m.api.Delete(t.Context(), provider); err != nil {
		t.Fatal(err)
	}
	m.awaitCondition("sim", v1beta1.ConditionDeleting, metav1.ConditionTrue, "Machines")
	m.deleteFleet("default")
	m.awaitNoProvider("sim")
	if live, _ := m.instances(); len(live) > 0 {
		t.Errorf("the instances %v still exist after the deletion of the fleet", live)
	}
	h.run(t, "uninstall", coreRelease, "--namespace="+system)
	h.run(t, "uninstall", cloudRelease, "--namespace="+system, "--wait")
}

func (m *machinist) provider(name, kind string, image *v1beta1.ProviderImage) {
	m.t.Helper()
	values, err := json.Marshal(map[string]any{
		"nodeSelector": map[string]string{corev1.LabelHostname: realnode.KubeadmNodeName},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	provider := &v1beta1.Provider{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.ProviderSpec{
			Type:      kind,
			ExtraArgs: []string{"--cloud-endpoint=http://" + cloudRelease + ":8080"},
			Values:    &runtime.RawExtension{Raw: values},
		},
	}
	if image != nil {
		provider.Spec.Image = *image
	}
	// The API server serves a new kind only a moment after Helm has created the CRD.
	m.eventually("Provider "+name+" is created", func() (bool, string) {
		err := m.api.Create(m.t.Context(), provider)
		return err == nil, fmt.Sprint(err)
	})
}

func (m *machinist) awaitCondition(name, kind string, status metav1.ConditionStatus, text string) {
	m.t.Helper()
	env.Await(m.t, m.api, &v1beta1.ProviderList{}, fmt.Sprintf("Provider %s %s=%s %q", name, kind, status, text),
		func(list *v1beta1.ProviderList) (bool, string) {
			for _, p := range list.Items {
				if p.Name != name {
					continue
				}
				for _, c := range p.Status.Conditions {
					if c.Type == kind && c.Status == status && strings.Contains(c.Message, text) {
						progress(m.t, "Provider %s: %s=%s (%s: %s)", name, kind, status, c.Reason, c.Message)
						return true, ""
					}
				}
				return false, fmt.Sprintf("%+v", p.Status.Conditions)
			}
			return false, "the Provider does not exist"
		})
}

func (m *machinist) deleteProvider(name string) {
	m.t.Helper()
	if err := m.api.Delete(m.t.Context(), &v1beta1.Provider{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		m.t.Fatal(err)
	}
	m.awaitNoProvider(name)
}

func (m *machinist) awaitNoProvider(name string) {
	m.t.Helper()
	env.Await(m.t, m.api, &v1beta1.ProviderList{}, "the removal of Provider "+name,
		func(list *v1beta1.ProviderList) (bool, string) {
			i := slices.IndexFunc(list.Items, func(p v1beta1.Provider) bool { return p.Name == name })
			if i < 0 {
				return true, ""
			}
			return false, fmt.Sprintf("%+v", list.Items[i].Status.Conditions)
		})
}
