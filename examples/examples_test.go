package examples_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsyaml "sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud/driver"
	"machinist.dev/machinist/test/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// documents returns all manifests in this folder by their file names.
func documents(t *testing.T) map[string][]*unstructured.Unstructured {
	t.Helper()
	all := map[string][]*unstructured.Unstructured{}
	err := fs.WalkDir(os.DirFS("."), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content))); ; {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			object := &unstructured.Unstructured{}
			if err := sigsyaml.UnmarshalStrict(document, &object.Object); err != nil {
				return err
			}
			all[path] = append(all[path], object)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAPIServerAcceptsEveryExample(t *testing.T) {
	c := env.Client(t)
	// The sets use the same names for some objects, so each set needs its own namespace.
	namespaces := map[string]string{}
	count := 0
	for path, objects := range documents(t) {
		set := ""
		if ofAnotherModule(path) {
			set, _, _ = strings.Cut(path, "/")
		}
		if namespaces[set] == "" {
			namespaces[set] = env.Namespace(t)
		}
		for _, o := range objects {
			if strings.HasPrefix(path, "gitops/") && o.GroupVersionKind().Group != v1beta1.GroupName {
				continue // The API server does not have the kinds of Argo CD and Flux.
			}
			o.SetNamespace(namespaces[set])
			if err := c.Create(t.Context(), o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
				t.Errorf("%s: %s %s: %v", path, o.GetKind(), o.GetName(), err)
			}
			count++
		}
	}
	fleet, err := examples.Fleet()
	if err != nil {
		t.Fatal(err)
	}
	if count <= len(fleet) {
		t.Errorf("found %d examples, want more than the %d of the fleet", count, len(fleet))
	}
}

// ofAnotherModule reports whether the driver for a manifest is in another Go module, whose tests check the manifest.
func ofAnotherModule(path string) bool {
	for _, set := range []examples.Set{examples.Azure, examples.Libvirt, examples.OpenStack, examples.VSphere} {
		if strings.HasPrefix(path, string(set)+"/") {
			return true
		}
	}
	return false
}

// A user who applies two sets in one namespace would overwrite a shared Secret.
func TestNoTwoSetsShareASecret(t *testing.T) {
	owner := map[string]examples.Set{}
	for _, set := range []examples.Set{examples.Sim, examples.Azure, examples.Libvirt, examples.OpenStack, examples.VSphere} {
		objects, err := set.Objects()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, o := range objects {
			if _, ok := o.(*corev1.Secret); !ok {
				continue
			}
			if other, taken := owner[o.GetName()]; taken {
				t.Errorf("the sets %s and %s both have a Secret %s", other, set, o.GetName())
			}
			owner[o.GetName()], found[o.GetName()] = set, true
		}
		if !found[set.Credentials()] || !found[set.UserData()] {
			t.Errorf("the set %s has the Secrets %v", set, found)
		}
	}
}

// templates returns the machine templates of all deployments in the examples, by the names of the deployments.
func templates(t *testing.T, all map[string][]*unstructured.Unstructured) map[string]v1beta1.MachineTemplateSpec {
	t.Helper()
	found := map[string]v1beta1.MachineTemplateSpec{}
	for _, objects := range all {
		for _, o := range objects {
			if o.GetKind() != "MachineDeployment" {
				continue
			}
			md := &v1beta1.MachineDeployment{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, md); err != nil {
				t.Fatal(err)
			}
			found[md.Name] = md.Spec.Template
		}
	}
	if len(found) == 0 {
		t.Fatal("no MachineDeployment")
	}
	return found
}

// Every later version of the API treats a Machine without the label like a Machine of the current version. Therefore
// all Machines and templates in the examples and the documentation need the label.
func TestMachinesInExamplesHaveTypeVersion(t *testing.T) {
	machines := map[string]bool{}
	for path, objects := range documents(t) {
		for _, o := range objects {
			checkTypeVersion(t, path, o)
			machines[path] = machines[path] || o.GetKind() == "Machine"
		}
	}
	for _, b := range blocks(t) {
		if o, complete, err := b.object(); err == nil && complete {
			checkTypeVersion(t, b.at, o)
		}
	}
	for _, set := range []examples.Set{examples.Sim, examples.Azure, examples.Libvirt, examples.OpenStack, examples.VSphere} {
		if path := "machine/" + string(set) + ".yaml"; !machines[path] {
			t.Errorf("%s contains no Machine", path)
		}
	}
}

func checkTypeVersion(t *testing.T, at string, o *unstructured.Unstructured) {
	t.Helper()
	labels, isMachine := o.GetLabels(), o.GetKind() == "Machine"
	if !isMachine {
		labels, isMachine, _ = unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
	}
	if isMachine && o.GroupVersionKind().Group == v1beta1.GroupName &&
		labels[v1beta1.LabelTypeVersion] != v1beta1.TypeVersion {
		t.Errorf("%s: %s %s: the label %s is %q, want %q", at, o.GetKind(), o.GetName(), v1beta1.LabelTypeVersion,
			labels[v1beta1.LabelTypeVersion], v1beta1.TypeVersion)
	}
}

func TestExamplesHaveValidReferencesAndProviderSpecs(t *testing.T) {
	all := documents(t)
	maps.DeleteFunc(all, func(path string, _ []*unstructured.Unstructured) bool { return ofAnotherModule(path) })
	classes, secrets := map[string]v1beta1.MachineClassSpec{}, map[string]bool{}
	for _, objects := range all {
		for _, o := range objects {
			switch o.GetKind() {
			case "Secret":
				secrets[o.GetName()] = true
			case "MachineClass":
				class := &v1beta1.MachineClass{}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, class); err != nil {
					t.Fatal(err)
				}
				classes[class.Name] = class.Spec
			}
		}
	}
	sim, err := driver.New(driver.Options{Endpoints: []string{"http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	check := func(what, providerName string, spec *runtime.RawExtension, credentials *v1beta1.LocalRef,
		userData *v1beta1.UserDataRef) {
		t.Helper()
		if providerName != driver.Name {
			t.Errorf("%s: provider %q", what, providerName)
		}
		if err := sim.Validate(t.Context(), provider.ValidateRequest{Class: provider.Class{Spec: spec.Raw}}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if !secrets[credentials.Name] || !secrets[userData.Name] {
			t.Errorf("%s: Secret %q or %q is not among the examples", what, credentials.Name, userData.Name)
		}
	}
	for name, spec := range classes {
		check("class "+name, spec.Provider, spec.ProviderSpec, spec.CredentialsRef, spec.UserDataRef)
	}
	for name, template := range templates(t, all) {
		if template.ObjectMeta.Labels[v1beta1.LabelTypeVersion] != v1beta1.TypeVersion {
			t.Errorf("%s: labels %v do not include the type version", name, template.ObjectMeta.Labels)
		}
		if ref := template.Spec.ClassRef; ref == nil {
			check(name, template.Spec.Provider, template.Spec.ProviderSpec, template.Spec.CredentialsRef,
				template.Spec.UserDataRef)
		} else if _, found := classes[ref.Name]; !found {
			t.Errorf("%s: class %q is not among the examples", name, ref.Name)
		}
	}
}

func TestUserDataContainsWhatANodeNeeds(t *testing.T) {
	// Real clouds set the host name of an instance. In the simulated cloud, the user data must set it.
	for set, hostname := range map[examples.Set]string{examples.Sim: "worker-1", examples.Azure: "", examples.Libvirt: "",
		examples.OpenStack: ""} {
		t.Run(string(set), func(t *testing.T) { checkUserData(t, set, hostname) })
	}
}

// checkUserData renders the user data of a set, and checks its host name and its files.
func checkUserData(t *testing.T, set examples.Set, hostname string) {
	objects, err := set.Objects()
	if err != nil {
		t.Fatal(err)
	}
	var template []byte
	for _, o := range objects {
		if secret, ok := o.(*corev1.Secret); ok && secret.Name == set.UserData() {
			template = []byte(secret.StringData[v1beta1.DefaultUserDataKey])
		}
	}
	if !bootstrap.NeedsToken(template) {
		t.Fatal("the template does not contain the placeholder of the bootstrap token")
	}
	ca := []byte("-----BEGIN CERTIFICATE-----\n")
	out, err := bootstrap.Render(template, bootstrap.Values{
		MachineName: "worker-1", MachineNamespace: "default", KubeletVersion: "v1.36.3",
		APIEndpoint: "https://10.0.0.1:6443", CABundle: ca, BootstrapToken: "abcdef.0123456789abcdef",
	})
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Hostname   string `json:"hostname"`
		WriteFiles []struct {
			Path, Permissions, Content string
		} `json:"write_files"`
	}
	if !bytes.HasPrefix(out, []byte("#cloud-config\n")) {
		t.Errorf("the user data begins with %.20q, want #cloud-config", out)
	}
	if err := sigsyaml.UnmarshalStrict(out, &config); err != nil {
		t.Fatal(err)
	}
	if config.Hostname != hostname {
		t.Errorf("hostname is %q, want %q", config.Hostname, hostname)
	}
	files := map[string]string{}
	for _, f := range config.WriteFiles {
		files[f.Path] = f.Content
	}
	for path, parts := range map[string][]string{
		"/etc/kubernetes/bootstrap-kubeconfig": {"server: https://10.0.0.1:6443", base64.StdEncoding.EncodeToString(ca),
			"token: abcdef.0123456789abcdef"},
		"/var/lib/kubelet/config.yaml": {"kind: KubeletConfiguration", "key: " + v1beta1.NodeTaintUninitialized,
			"effect: NoSchedule"},
		"/etc/default/kubelet": {"KUBELET_VERSION=v1.36.3"},
	} {
		for _, part := range parts {
			if !strings.Contains(files[path], part) {
				t.Errorf("%s lacks %q:\n%s", path, part, files[path])
			}
		}
	}
}
