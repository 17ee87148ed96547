package cli

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/cli/installation"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/env/inmemory"
)

func TestVersionShowsCommandKindsAndProcesses(t *testing.T) {
	p := newTestFleet(t)
	p.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "machinist-manager-x", Labels: map[string]string{
			installation.LabelPartOf: installation.PartOf, installation.LabelName: "machinist-manager"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "machinist-manager",
			Image: "example.com/machinist-manager:v9.8.7"}}},
	})
	p.lease("machinist-provider-sim", time.Second)
	p.lease("machinist-provider-stopped", time.Hour)
	p.lease("somebody-elses", time.Second)
	got := p.run("version").succeeds(t).prints(t, "Client: ", "API machinist.dev/v1beta1", "MachineDeployment", "v1beta1",
		"machinist-manager", "v9.8.7", "0/1", "machinist-provider-sim", "host")
	for _, absent := range []string{"machinist-provider-stopped", "somebody-elses"} {
		if strings.Contains(got.out, absent) {
			t.Errorf("printed %s:\n%s", absent, got.out)
		}
	}
	var view installation.Versions
	if err := json.Unmarshal([]byte(p.run("version", "-o", "json").succeeds(t).out), &view); err != nil {
		t.Fatal(err)
	}
	if view.Client.API != "machinist.dev/v1beta1" || len(view.Kinds) < 5 || len(view.Processes) < 2 {
		t.Errorf("got %+v", view)
	}
}

func TestClientVersionNeedsNoCluster(t *testing.T) {
	none := t.TempDir() + "/none"
	executeAt(t, none, "", "version", "--client").succeeds(t).prints(t, "Client: ")
	executeAt(t, none, "", "version").fails(t, "kubeconfig").prints(t, "Client: ")
	execute(t, "version", "-o", "xml").fails(t, "--output", "xml")
}

func TestVersionInClusterWithoutKinds(t *testing.T) {
	executeAt(t, inmemory.WithoutMachinist(t), "", "version").succeeds(t).prints(t, "lacks the CustomResourceDefinitions of MachineClass, Machine,")
}

func TestVersionReportsMissingPermissions(t *testing.T) {
	p := newTestFleet(t)
	p.run("version", "--as", "stranger").succeeds(t).prints(t, "Client: ", "You may not read CustomResourceDefinitions",
		"You may not read pods in machinist-system, kube-system, "+p.namespace, "You may not read leases in ")
}

// A release labels its CustomResourceDefinitions with its version.
func TestVersionReportsReleaseOfKind(t *testing.T) {
	api := env.Client(t)
	crd := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1",
		Kind: "CustomResourceDefinition"}, ObjectMeta: metav1.ObjectMeta{Name: "machinehealthchecks.machinist.dev"}}
	set := func(value string) {
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"app.kubernetes.io/version":`+value+`}}}`))
		if err := api.Patch(context.Background(), crd, patch); err != nil {
			t.Fatal(err)
		}
	}
	set(`"v7.7.7"`)
	t.Cleanup(func() { set("null") })
	execute(t, "version").succeeds(t).prints(t, "MachineHealthCheck        v7.7.7")
}
