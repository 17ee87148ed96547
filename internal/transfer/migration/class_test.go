package migration

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/legacy"
)

func TestSetPathDoesNotAddParents(t *testing.T) {
	for path, want := range map[string]string{
		"a":         `{"a":"x","list":[{"b":"old"},"c"],"map":{"d":"old"},"text":"t"}`,
		"map.d":     `{"list":[{"b":"old"},"c"],"map":{"d":"x"},"text":"t"}`,
		"map.e":     `{"list":[{"b":"old"},"c"],"map":{"d":"old","e":"x"},"text":"t"}`,
		"list.0.b":  `{"list":[{"b":"x"},"c"],"map":{"d":"old"},"text":"t"}`,
		"list.1":    `{"list":[{"b":"old"},"x"],"map":{"d":"old"},"text":"t"}`,
		"list.2":    `{"list":[{"b":"old"},"c"],"map":{"d":"old"},"text":"t"}`,
		"list.-1":   `{"list":[{"b":"old"},"c"],"map":{"d":"old"},"text":"t"}`,
		"list.one":  `{"list":[{"b":"old"},"c"],"map":{"d":"old"},"text":"t"}`,
		"text.sub":  `{"list":[{"b":"old"},"c"],"map":{"d":"old"},"text":"t"}`,
		"none.sub":  `{"list":[{"b":"old"},"c"],"map":{"d":"old"},"text":"t"}`,
		"list.1.no": `{"list":[{"b":"old"},"c"],"map":{"d":"old"},"text":"t"}`,
	} {
		var object map[string]any
		if err := json.Unmarshal([]byte(`{"map":{"d":"old"},"list":[{"b":"old"},"c"],"text":"t"}`), &object); err != nil {
			t.Fatal(err)
		}
		setPath(object, strings.Split(path, "."), "x")
		got, _ := json.Marshal(object)
		if string(got) != want {
			t.Errorf("%s: %s, expected %s", path, got, want)
		}
	}
}

func gardener(t *testing.T) (f *oldFleet, class string) {
	t.Helper()
	return fleetOf(t, provider.SourceGardener, "healthy"), "shoot--fleet--one-pool-z1-1f2e3"
}

func (f *oldFleet) override(class, patch string) {
	f.migration.Spec.Overrides = append(f.migration.Spec.Overrides, v1beta1.MigrationOverride{Class: class,
		Patch: &runtime.RawExtension{Raw: []byte(patch)}})
}

func TestOverrideChangesClass(t *testing.T) {
	f, class := gardener(t)
	f.override(class, `{"providerSpec":{"size":"large","region":null,"extra":1}}`)
	plan := f.plan()
	want := `{"apiVersion":"sim.machinist.dev/v1","extra":1,"kind":"SimMachine","size":"large"}`
	if got := string(plan.classes[0].object.Spec.ProviderSpec.Raw); got != want {
		t.Errorf("the providerSpec is %s, expected %s", got, want)
	}
	if b := plan.blockers(); len(b) > 0 {
		t.Errorf("blocked by %s", b)
	}
	plain, _ := gardener(t)
	if plain.plan().hash == plan.hash {
		t.Error("a plan with an override has the same hash as one without")
	}
}

func TestInvalidOverrideIsBlocker(t *testing.T) {
	for name, patch := range map[string]string{
		"not JSON":                     `{`,
		"an unknown field":             `{"providerspec":{"size":"large"},"providerSpecs":{}}`,
		"a field of the wrong type":    `{"providerSpec":{},"capacity":"much"}`,
		"another provider":             `{"provider":"other"}`,
		"no provider":                  `{"provider":null}`,
		"no providerSpec":              `{"providerSpec":null}`,
		"adoption that is not allowed": `{"adoption":"Forbid"}`,
	} {
		t.Run(name, func(t *testing.T) {
			f, class := gardener(t)
			f.override(class, patch)
			found := f.plan().expect(t, blocker, CodeClassInvalid, "Migration/move")
			if found.Path != "spec.overrides[0].patch" {
				t.Errorf("the path is %s", found.Path)
			}
		})
	}
	f, _ := gardener(t)
	f.override("other", `{}`)
	f.plan().expect(t, blocker, CodeUnusedOverride, "Migration/move")
}

func TestUnknownFlagIsBlocker(t *testing.T) {
	for _, c := range []struct{ group, flag, unknown, message string }{
		{provider.SourceClusterK8s, "--join-cluster-timeout", "skip-evictions-after",
			`The flag "skip-evictions-after" has no effect. A migration from cluster.k8s.io reads only these flags: ` +
				"join-cluster-timeout, skip-eviction-after. Correct or remove --flag."},
		{provider.SourceOpenShift, "", "skip-eviction-after", `The flag "skip-eviction-after" has no effect. ` +
			"A migration from machine.openshift.io reads no flags. Correct or remove --flag."},
	} {
		f := fleetOf(t, c.group, "healthy")
		f.migration.Spec.ProcessFlags = map[string]v1beta1.FlagValue{c.unknown: "2h"}
		if c.flag != "" {
			f.migration.Spec.ProcessFlags[c.flag] = "20m"
		}
		plan := f.plan()
		if found := plan.expect(t, blocker, CodeUnusedFlag, "Migration/move"); found.Message != c.message {
			t.Errorf("the message is %s", found.Message)
		}
		if n := len(plan.findings.withCode(CodeUnusedFlag)); n != 1 {
			t.Errorf("%d flags are blocked", n)
		}
	}
	f := unmanagedFleet(t, "web-1")
	f.migration.Spec.ProcessFlags = map[string]v1beta1.FlagValue{"x": "y"}
	f.planInstances().expect(t, blocker, CodeUnusedFlag, "Migration/move")
}

// Rule: migration-overrides-settle.
func TestOverrideResolvesBlockersOfTheDriver(t *testing.T) {
	lacks := func(f *oldFleet, code string) {
		f.cloud.imported = func(req provider.ImportRequest) (provider.ImportedSpec, error) {
			return provider.ImportedSpec{Spec: importedSpec(req.Legacy), Findings: []provider.Finding{
				{Level: provider.FindingBlocker, Code: code, Path: "osProfile.key", Message: "It is needed."}}}, nil
		}
		f.cloud.validated = func(spec string) error {
			if !strings.Contains(spec, `"key"`) {
				return provider.InvalidField("key", "it is required")
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		code, patch string
		want        []string
	}{
		"no override":                     {provider.FindingRequiredField, "", []string{CodeClassInvalid, provider.FindingRequiredField}},
		"an override without the field":   {provider.FindingRequiredField, `{"providerSpec":{"size":"x"}}`, []string{CodeClassInvalid, provider.FindingRequiredField}},
		"an override with the field":      {provider.FindingRequiredField, `{"providerSpec":{"key":"x"}}`, nil},
		"an override of an invalid field": {provider.FindingInvalidField, `{"providerSpec":{"key":"x"}}`, nil},
		"another Blocker stays":           {"Impossible", `{"providerSpec":{"key":"x"}}`, []string{"Impossible"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, class := gardener(t)
			lacks(f, c.code)
			if c.patch != "" {
				f.override(class, c.patch)
			}
			plan := f.plan()
			if got := plan.blockers(); !slices.Equal(got, c.want) {
				t.Errorf("blocked by %s, expected %s", got, c.want)
			}
			if len(c.want) > 0 {
				if got := plan.findings.withCode(c.code)[0]; got.Path != "providerSpec.osProfile.key" {
					t.Errorf("the path is %s, expected that in the old object", got.Path)
				}
			}
		})
	}
}

func TestCredentialsOfTheMigrationCompleteThoseOfTheClass(t *testing.T) {
	f, class := gardener(t)
	f.migration.Spec.CredentialsRef = &v1beta1.LocalRef{Name: "more"}
	more := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "more"},
		Data: map[string][]byte{"clientSecret": []byte("newer"), "tokenFile": []byte("t")}}
	f.plan().expect(t, blocker, CodeSecretUnreadable, "Migration/move")
	f.secrets = append(f.secrets, more)
	plan := f.plan()
	got := plan.classes[0].legacy.Credentials
	for key, want := range map[string]string{"clientID": "cloudprovider/clientID", "clientSecret": "newer",
		"tokenFile": "t"} {
		if value, _ := got.Get(key); string(value.Reveal()) != want {
			t.Errorf("%s is %q, expected %q", key, value.Reveal(), want)
		}
	}
	if ref := plan.classes[0].object.Spec.CredentialsRef; ref == nil || ref.Name != class+"-credentials" {
		t.Errorf("the class refers to the credentials %v", ref)
	}
	for _, secret := range plan.classes[0].secrets {
		for key, value := range secret.Labels {
			if len(value) > 63 {
				t.Errorf("the label %s of Secret %s is too long", key, secret.Name)
			}
		}
	}
}

func TestMissingValueIsBlockerWithPath(t *testing.T) {
	for name, c := range map[string]struct{ group, path, message string }{
		"an entry of a Secret": {provider.SourceClusterK8s,
			"spec.template.spec.providerSpec.value.cloudProviderSpec.clientSecret",
			"Secret kube-system/azure-account has no entry secret."},
		"a ConfigMap": {provider.SourceMachineK8s, "spec.providerConfig.cloudProviderSpec.resourceGroup",
			"ConfigMap kube-system/azure-network does not exist."},
	} {
		t.Run(name, func(t *testing.T) {
			f := fleetOf(t, c.group, "healthy")
			delete(f.secrets[0].(*corev1.Secret).Data, "secret")
			plan := f.plan()
			i := slices.IndexFunc(plan.findings, func(one objectFinding) bool { return one.Path == c.path })
			if i < 0 || plan.findings[i].Level != blocker || plan.findings[i].Code != CodeSecretUnreadable ||
				plan.findings[i].Message != c.message {
				t.Errorf("no Blocker about %s:\n%s", c.path, plan.findings.text())
			}
		})
	}
}

func TestConfigMapHasTextAndBinaryEntries(t *testing.T) {
	f := newFleet(t, provider.SourceMachineK8s)
	f.secrets = append(f.secrets, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "c"},
		Data: map[string]string{"text": "t"}, BinaryData: map[string][]byte{"bytes": {1}}})
	reader := f.planner().secrets
	data, problem, err := reader.entries(context.Background(), "ConfigMap", key("kube-system", "c"))
	if err != nil || problem != nil || string(data["text"]) != "t" || string(data["bytes"]) != "\x01" {
		t.Errorf("read %q, %v, %v", data, problem, err)
	}
	if _, problem, _ := reader.entries(context.Background(), "Pod", key("kube-system", "c")); problem == nil {
		t.Error("values are read from a Pod")
	}
}

func TestErrorOfLocateIsBlockerOrIsRetried(t *testing.T) {
	for code, want := range map[provider.Code]string{
		provider.Unimplemented: CodeCannotImport, provider.InvalidArgument: CodeCannotImport,
		provider.Unauthenticated: CodeCannotImport, provider.PermissionDenied: CodeCannotImport,
		provider.FailedPrecondition: CodeCannotImport,
	} {
		f, class := gardener(t)
		f.cloud.locateError = provider.Errorf(code, "no")
		plan := f.plan()
		if plan.expect(t, blocker, want, "MachineClass/"+class); slices.Contains(plan.blockers(), CodeInstanceNotFound) {
			t.Errorf("%s: machines are reported to have no instance, although their instances could not be listed", code)
		}
	}
	f, _ := gardener(t)
	f.cloud.locateError = provider.Errorf(provider.Unavailable, "later")
	_, err := f.planner().build(context.Background(), f.visitObjects)
	if err == nil || !errors.Is(err, f.cloud.locateError) {
		t.Errorf("if the cloud does not answer, the error is %v", err)
	}
}

// Rule: migration-user-data-of-the-migration-wins.
func TestUserDataOfTheMigrationTakesPrecedence(t *testing.T) {
	f := healthy(t)
	f.secrets = slices.DeleteFunc(f.secrets, func(o client.Object) bool {
		return o.GetNamespace() == "cloud-init-settings"
	})
	blocked := f.plan()
	b := blocked.findings.withCode(CodeSecretUnreadable)
	if len(b) != 1 || !strings.Contains(b[0].Message, "machinist migrate plan move -n fleet --user-data SECRET") {
		t.Fatalf("without the Secret, the findings are\n%s", blocked.findings.text())
	}
	general := blocked.deployments[0].object.Spec.Template.Spec.ClassRef.Name
	f.override(general, `{"userDataRef":{"name":"own"}}`)
	f.plan().expect(t, provider.FindingBlocker, CodeSecretUnreadable, "MachineDeployment/general")
	template := func(name, key string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name},
			Data: map[string][]byte{key: []byte("#cloud-config")}}
	}
	own := template("own", "another")
	f.secrets = append(f.secrets, own)
	made := f.plan()
	if b := made.findings.withCode(CodeSecretUnreadable); len(b) != 1 || !strings.Contains(b[0].Message,
		"Secret fleet/own has no entry userData.") {
		t.Errorf("the Secret lacks the entry, but the findings are\n%s", made.findings.text())
	}
	own.Data = template("own", v1beta1.DefaultUserDataKey).Data
	f.secrets = append(f.secrets, template("template", v1beta1.DefaultUserDataKey))
	if made := f.plan(); len(made.findings.withCode(CodeSecretUnreadable)) > 0 {
		t.Errorf("the override does not settle the missing Secret:\n%s", made.findings.text())
	}
	f.migration.Spec.UserDataRef = &v1beta1.UserDataRef{Name: "template", Key: "userData"}
	made = f.plan()
	for _, c := range made.classes {
		want := map[bool]string{true: "own", false: "template"}[c.name == general]
		if ref := c.object.Spec.UserDataRef; ref == nil || ref.Name != want || ref.Key != "userData" {
			t.Errorf("class %s has user data %v, want %s", c.name, ref, want)
		}
	}
	for _, code := range []string{CodeNoUserData, source.CodeUserData, CodeSecretUnreadable} {
		if all := made.findings.withCode(code); len(all) > 0 {
			t.Errorf("the Migration names user data, but the plan has the findings %v", all)
		}
	}
}

// Rule: migration-user-data-needs-version.
func TestUserDataWithKubeletVersionNeedsVersions(t *testing.T) {
	f := healthy(t)
	f.migration.Spec.UserDataRef = &v1beta1.UserDataRef{Name: "template"}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "template"},
		Data: map[string][]byte{v1beta1.DefaultUserDataKey: []byte("kubelet: <<KUBELET_VERSION>>")}}
	f.secrets = append(f.secrets, secret)
	if all := f.plan().findings.withCode(CodeNoVersion); len(all) > 0 {
		t.Errorf("every old object has a version, but the plan has the findings %v", all)
	}
	var deployment string
	for _, o := range f.objects {
		if o.GetKind() == "MachineDeployment" {
			deployment = nameOf(o)
			unstructured.RemoveNestedField(o.Object, "spec", "template", "spec", "versions")
		}
	}
	f.plan().expect(t, provider.FindingBlocker, CodeNoVersion, deployment)
	secret.Data[v1beta1.DefaultUserDataKey] = []byte("kubelet: v1.36.3")
	if all := f.plan().findings.withCode(CodeNoVersion); len(all) > 0 {
		t.Errorf("the user data needs no version, but the plan has the findings %v", all)
	}
}

// Rule: migration-replaces-old-placeholders.
func TestUserDataGetsPlaceholdersOfMachinist(t *testing.T) {
	f := healthy(t)
	for _, o := range f.secrets {
		if o.GetNamespace() == "cloud-init-settings" {
			o.(*corev1.Secret).Data["cloud-config"] = []byte("hostname: <MACHINE_NAME>\n# <NODE_ADDRESS>\n")
		}
	}
	made := f.plan()
	found := made.findings.withCode(CodePlaceholder)
	if len(found) != 1 || found[0].Level != loss || !strings.Contains(found[0].Message, "<NODE_ADDRESS>") {
		t.Errorf("got the findings\n%s\nwant the Loss %s", made.findings.text(), CodePlaceholder)
	}
	for _, c := range made.classes {
		for _, s := range c.secrets {
			if text := string(s.Data["userData"]); s.Name == c.name+"-user-data" &&
				text != "hostname: <<MACHINE_NAME>>\n# <NODE_ADDRESS>\n" {
				t.Errorf("the user data of class %s is %q", c.name, text)
			}
		}
	}
}

// Rule: migration-checks-the-provider-first.
func TestOtherCloudIsOneBlocker(t *testing.T) {
	f := fleetOf(t, provider.SourceClusterK8s, "healthy")
	f.secrets = nil
	f.cloud.imported = func(provider.ImportRequest) (provider.ImportedSpec, error) {
		return provider.ImportedSpec{}, provider.Errorf(provider.Unimplemented, "the description is for another cloud")
	}
	plan := f.plan()
	if plan.expect(t, blocker, CodeCannotImport, "MachineDeployment/general"); len(plan.blockers()) != 1 {
		t.Errorf("blocked by %s, although the provider cannot adopt any instance", plan.blockers())
	}
}

// Rule: migration-reports-a-cause-once.
func TestMissingCredentialsAreOneBlocker(t *testing.T) {
	f := fleetOf(t, provider.SourceClusterK8s, "healthy")
	f.addCopy("Machine", oldMachine, "large", func(o *unstructured.Unstructured) { resize(t, o, "Standard_D8s_v3") })
	f.cloud.imported = func(req provider.ImportRequest) (provider.ImportedSpec, error) {
		out := provider.ImportedSpec{Spec: importedSpec(req.Legacy)}
		if value, _ := req.Legacy.Credentials.Get("AZURE_CLIENT_ID"); len(value.Reveal()) == 0 {
			out.Findings = []provider.Finding{legacy.MissingCredentials("clientID or AZURE_CLIENT_ID")}
		}
		return out, nil
	}
	f.cloud.locateError = provider.Errorf(provider.InvalidArgument, "clientID is required")
	plan := f.plan()
	got := plan.expect(t, blocker, provider.FindingMissingCredentials, "MachineDeployment/general")
	if len(plan.blockers()) != 1 || !strings.Contains(got.Message, "clientID or AZURE_CLIENT_ID") ||
		!strings.Contains(got.Message, "machinist migrate plan move -n fleet --credentials SECRET") {
		t.Errorf("the findings are\n%s", plan.findings.text())
	}
	f.cloud.locateError = nil
	f.migration.Spec.CredentialsRef = &v1beta1.LocalRef{Name: "environment"}
	f.secrets = append(f.secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "environment"},
		Data: map[string][]byte{"AZURE_CLIENT_ID": []byte("id")}})
	if got := f.plan().blockers(); len(got) > 0 {
		t.Errorf("with the Secret, the plan is blocked by %s", got)
	}
}

func TestNameOfClassBeginsWithItsObject(t *testing.T) {
	f := healthy(t)
	long := "with.a.very.long.name." + strings.Repeat("x", 60)
	f.addCopy("Machine", oldMachine, long, func(o *unstructured.Unstructured) { resize(t, o, "Standard_D8s_v3") })
	classes := f.plan().classes
	if !strings.HasPrefix(classes[0].name, "general-") {
		t.Errorf("the class of the deployment general is named %s", classes[0].name)
	}
	last := classes[len(classes)-1].name
	if !strings.HasPrefix(last, "with-a-very-long-name-xx") || len(last+"-credentials") > 63 {
		t.Errorf("the class of the machine is named %s", last)
	}
}

// In Cluster API, the name of a class joins the names of a template and of a zone.
func TestDifferentClassesWithOneNameAreNotMerged(t *testing.T) {
	p := fleetOf(t, provider.SourceClusterAPI, "healthy").planner()
	p.plan, p.classes = &plan{}, map[string]*class{}
	description := func(size string) *source.Class {
		return &source.Class{Name: "md-1", Provider: "SimMachine", Spec: map[string]any{"size": size}}
	}
	first, other := p.class(description("small"), "MachineSet/a"), p.class(description("large"), "MachineSet/b")
	if first.name != "md-1" || other.name == first.name || !strings.HasPrefix(other.name, "md-1-") {
		t.Errorf("the names are %s and %s", first.name, other.name)
	}
	if p.class(description("small"), "MachineSet/c") != first || p.class(description("large"), "MachineSet/d") != other ||
		len(p.plan.classes) != 2 {
		t.Errorf("equal descriptions do not share a class: there are %d classes", len(p.plan.classes))
	}
}
