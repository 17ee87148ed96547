//go:build e2e

package ui

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// TestPictures creates the screenshots of docs/ui.md, which show a fleet during a rollout. TestPictures runs only if
// UI_PICTURES contains their folder, as in `make screenshots`. With UI_PICTURES_ALL=1, TestPictures creates PNG files
// of all pages, light and dark.
func TestPictures(t *testing.T) {
	folder := os.Getenv("UI_PICTURES")
	if folder == "" {
		t.Skip("UI_PICTURES is not set")
	}
	p := newStaticCluster(t)
	p.namespace("prod")
	p.leases("prod")
	const blocked = "6 of 7 machines of the new revision are available; while machines of an old revision are deleted " +
		"(6 left), at least 12 must stay available (replicas 12 − maxUnavailable 0)."
	at := func(ago time.Duration) *metav1.Time { m := metav1.NewTime(time.Now().Add(-ago)); return &m }
	web := p.deployment("prod", "web", 12, func(d *v1beta1.MachineDeployment) {
		d.Status.CurrentRevision, d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas = 2, 13, 7, 12
		d.Status.RecentFailures = []v1beta1.FailedMachine{
			{Name: "web-7d9f2-k2xvq", Reason: "InsufficientResources", Time: at(4 * time.Minute),
				Message: "The provider had no capacity within 20m0s."},
			{Name: "web-abcde-00031", Reason: "InstanceVanished", Time: at(3 * time.Hour),
				Message: vanished}}
		d.Status.Conditions = []metav1.Condition{
			aged(v1beta1.ConditionAvailable, true, v1beta1.ReasonMinimumReplicasAvailable,
				"12 of 12 machines are available, at least 12 must be.", time.Hour),
			aged(v1beta1.ConditionProgressing, true, v1beta1.ReasonMachineSetUpdated,
				"Set web-7d9f2 is progressing: "+blocked, 2*time.Minute),
			aged(v1beta1.ConditionRollingOut, true, v1beta1.ReasonRolloutBlocked, blocked, 6*time.Minute)}
	})
	next := web.DeepCopy()
	next.ObjectMeta = metav1.ObjectMeta{Namespace: "prod", Name: "web-7d9f2", OwnerReferences: web.OwnerReferences,
		Annotations: map[string]string{v1beta1.AnnotationRevision: "2"}}
	next.Spec.Template.Spec.ClassRef = &v1beta1.LocalRef{Name: "xlarge"}
	next.Spec.Replicas = int32p(7)
	p.create(next)
	var all []*v1beta1.Machine
	for i := range 6 {
		all = append(all, machine(web, i))
	}
	for i := range 7 {
		m := machine(next, 100+i)
		m.Name = fmt.Sprintf("web-7d9f2-%05d", i)
		m.Labels[v1beta1.LabelMachineDeployment] = "web"
		m.Status.NodeRef.Name = m.Name
		if i == 6 {
			m.Status.Phase, m.Status.NodeRef, m.Status.Version = v1beta1.MachineProvisioned, nil, ""
			m.Status.Conditions = []metav1.Condition{aged(v1beta1.ConditionLaunched, true, "InstanceLaunched", "", time.Minute),
				aged(v1beta1.ConditionRegistered, false, v1beta1.ReasonWaitingForNode,
					fmt.Sprintf("No node with the provider ID %s has registered.", m.Spec.ProviderID), 50*time.Second),
				aged(v1beta1.ConditionReady, false, v1beta1.ReasonWaitingForNode, "", time.Minute)}
		}
		all = append(all, m)
	}
	batch := p.deployment("prod", "batch", 24, nil)
	for i := range 24 {
		all = append(all, machine(batch, 200+i))
	}
	gpu := p.deployment("prod", "gpu", 3, func(d *v1beta1.MachineDeployment) { d.Spec.Paused = true })
	all = append(all, machine(gpu, 300), machine(gpu, 301),
		withFailure(machine(gpu, 302), vanished))
	ingress := p.deployment("prod", "ingress", 4, nil)
	for i := range 4 {
		all = append(all, machine(ingress, 400+i))
	}
	p.machines(all)
	s := serve(t, p.cp.Kubeconfig(), "-n", "prod", "--system-namespace", "prod")
	b := enter(t, s, "/")
	save := func(scheme, path, name, format string) {
		b.scheme(scheme)
		b.open(path)
		if path != "/plan" {
			b.await("document.getElementById('connection').dataset.state === 'live'")
		}
		// Remove the footer, because it contains the version and the URL of this test.
		get[bool](b, "(document.querySelector('footer').remove(), true)")
		b.picture(folder, name, format)
	}
	if os.Getenv("UI_PICTURES_ALL") == "" {
		save("light", "/", "fleets", "webp")
		save("dark", "/", "fleets-dark", "webp")
		save("light", "/deployments/prod/web", "deployment", "webp")
		save("dark", "/machines/prod/web-7d9f2-00006", "machine", "webp")
		return
	}
	for _, scheme := range []string{"light", "dark"} {
		for name, path := range map[string]string{"fleets": "/", "machines": "/machines?sort=state",
			"machine": "/machines/prod/web-7d9f2-00006", "broken": "/machines/prod/gpu-abcde-00302",
			"deployment": "/deployments/prod/web", "zones": "/zones", "ownership": "/ownership?q=web",
			"failures": "/failures", "orphans": "/orphans", "plan": "/plan"} {
			save(scheme, path, name+"-"+scheme, "png")
		}
	}
	b.do(chromedp.EmulateViewport(420, 900))
	for name, path := range map[string]string{"fleets": "/", "deployment": "/deployments/prod/web", "machines": "/machines"} {
		save("light", path, name+"-narrow", "png")
		if wide := get[int](b, "document.documentElement.scrollWidth"); wide > 420 {
			t.Errorf("%s has a width of %d on a screen with a width of 420", path, wide)
		}
	}
}

func int32p(n int32) *int32 { return &n }
