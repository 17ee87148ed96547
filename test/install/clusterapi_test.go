//go:build e2e && linux

package install

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// clusterAPI contains the kinds of Cluster API that share their names with kinds of Machinist, by short name. kubectl
// resolves an ambiguous short name to Cluster API, whose group comes first in alphabetical order.
var clusterAPI = map[string]string{"md": "MachineDeployment", "ms": "MachineSet", "ma": "Machine"}

var clusterAPIVersion = schema.GroupVersion{Group: "cluster.x-k8s.io", Version: "v1beta1"}

// The commands in docs/day-2.md that remove Machinist must not delete objects of Cluster API.
func TestUninstallCommandsKeepClusterAPI(t *testing.T) {
	m := newMachinist(t)
	h := helmOf(t, m.cluster, "4")
	clusterAPIObjects := m.clusterAPIFleet()
	m.installCloud(h)
	m.install(h)
	m.fleet("default")
	m.awaitReady("default", fleetSize)
	if output, err := m.command("preflight"); err != nil || !strings.Contains(output, clusterAPIVersion.Group) {
		t.Errorf("machinist preflight does not report Cluster API: %v\n%s", err, output)
	}

	for _, script := range scriptsUnder(t, "docs/day-2.md", "Uninstall") {
		m.shell(h, script)
	}
	if live, _ := m.instances(); len(live) > 0 {
		t.Errorf("the instances %v still exist", live)
	}
	crds := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := m.api.List(t.Context(), crds); err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds.Items {
		if strings.HasSuffix(crd.Name, ".machinist.dev") && crd.DeletionTimestamp == nil {
			t.Errorf("the CRD %s still exists", crd.Name)
		}
	}
	for _, o := range clusterAPIObjects {
		if err := m.api.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil || o.GetDeletionTimestamp() != nil {
			t.Errorf("%s of Cluster API: got deletion timestamp %v and error %v, want none", o.GetKind(),
				o.GetDeletionTimestamp(), err)
		}
	}
	h.run(t, "uninstall", cloudRelease, "--namespace="+system, "--wait")
	// The commands keep the Secrets, because the Secrets belong to the user. Delete them here, because the next test
	// creates them again.
	if err := m.api.DeleteAllOf(t.Context(), &corev1.Secret{}, client.InNamespace("default"),
		client.HasLabels{v1beta1.LabelSecretUse}); err != nil {
		t.Fatal(err)
	}
}

func scriptsUnder(t *testing.T, document, section string) (scripts []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(text), "\n## "+section+"\n")
	body, _, _ = strings.Cut(body, "\n## ")
	for _, match := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(body, -1) {
		scripts = append(scripts, match[1])
	}
	if len(scripts) != 2 {
		t.Fatalf("%s: got %d scripts in the section %q, want 2", document, len(scripts), section)
	}
	return scripts
}

func (m *machinist) clusterAPIFleet() (objects []*unstructured.Unstructured) {
	m.t.Helper()
	for short, kind := range clusterAPI {
		plural := strings.ToLower(kind) + "s"
		crd := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: plural + "." + clusterAPIVersion.Group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: clusterAPIVersion.Group, Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(kind), Kind: kind,
					ListKind: kind + "List", ShortNames: []string{short}},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: clusterAPIVersion.Version, Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: ptr.To(true)}}}},
			},
		}
		if err := m.api.Create(m.t.Context(), crd); err != nil {
			m.t.Fatal(err)
		}
		m.t.Cleanup(func() { _ = m.api.Delete(context.Background(), crd) })
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(clusterAPIVersion.WithKind(kind))
		o.SetNamespace("default")
		o.SetName("cluster-api")
		m.eventually(kind+" of Cluster API is served", func() (bool, string) {
			err := m.api.Create(m.t.Context(), o)
			if err != nil {
				return false, err.Error()
			}
			return true, ""
		})
		objects = append(objects, o)
	}
	return objects
}
