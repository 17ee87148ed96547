package resolve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/platform/index"
)

const namespace = "ns"

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func resolver(t *testing.T, objects ...client.Object) *resolve.Resolver {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).Build()
	return &resolve.Resolver{Classes: c, Secrets: c}
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func secret(name, key, value string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: named(name), Data: map[string][]byte{key: []byte(value)}}
	s.Labels = map[string]string{v1beta1.LabelSecretUse: v1beta1.SecretUseCredentials}
	if name == "boot" {
		s.Labels[v1beta1.LabelSecretUse] = v1beta1.SecretUseUserData
	}
	return s
}

func labelledFor(use string, s *corev1.Secret) *corev1.Secret {
	s = s.DeepCopy()
	s.Labels[v1beta1.LabelSecretUse] = use
	if use == "" {
		s.Labels = nil
	}
	return s
}

func empty(s *corev1.Secret) *corev1.Secret {
	s.Data = nil
	return s
}

func raw(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

func class() *v1beta1.MachineClass {
	return &v1beta1.MachineClass{ObjectMeta: named("c"), Spec: v1beta1.MachineClassSpec{
		Provider: "sim", ProviderSpec: raw(`{"a":1}`), Adoption: v1beta1.AdoptionAllow,
		CredentialsRef: &v1beta1.LocalRef{Name: "creds"}, UserDataRef: &v1beta1.UserDataRef{Name: "boot"},
	}}
}

func byClass() *v1beta1.Machine {
	return &v1beta1.Machine{ObjectMeta: named("m"), Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "c"}}}
}

func inline() *v1beta1.Machine {
	return &v1beta1.Machine{ObjectMeta: named("m"), Spec: v1beta1.MachineSpec{
		Provider: "sim", ProviderSpec: raw(`{"b":2}`),
		CredentialsRef: &v1beta1.LocalRef{Name: "creds"}, UserDataRef: &v1beta1.UserDataRef{Name: "boot", Key: "other"},
	}}
}

func TestResolveReadsClassAndSecrets(t *testing.T) {
	r := resolver(t, class(), secret("creds", "token", "t"), secret("boot", "userData", "#cloud-config"))
	got, err := r.Resolve(t.Context(), byClass())
	if err != nil {
		t.Fatal(err)
	}
	token, _ := got.Credentials.Get("token")
	if got.ClassName != "c" || got.Provider != "sim" || string(got.ProviderSpec) != `{"a":1}` ||
		got.Adoption != v1beta1.AdoptionAllow ||
		got.CredentialsRef.Name != "creds" || got.Credentials.Namespace() != namespace || string(token.Reveal()) != "t" ||
		string(got.UserData) != "#cloud-config" {
		t.Errorf("got %+v", got)
	}
	if c := got.Class(); string(c.Spec) != `{"a":1}` || !slices.Equal(c.Credentials.Keys(), []string{"token"}) {
		t.Errorf("class for the driver: %+v", c)
	}
}

func TestResolveReadsTheInlineSpecification(t *testing.T) {
	r := resolver(t, secret("creds", "token", "t"), secret("boot", "other", "data"))
	got, err := r.Resolve(t.Context(), inline())
	if err != nil {
		t.Fatal(err)
	}
	if got.ClassName != "" || got.Provider != "sim" || string(got.ProviderSpec) != `{"b":2}` ||
		got.Adoption != v1beta1.AdoptionForbid || string(got.UserData) != "data" {
		t.Errorf("got %+v", got)
	}
	bare := inline()
	bare.Spec.CredentialsRef, bare.Spec.UserDataRef = nil, nil
	if got, err := r.Resolve(t.Context(), bare); err != nil || !got.Credentials.IsEmpty() || got.UserData != nil {
		t.Errorf("without Secrets: %+v %v", got, err)
	}
}

// Rule: secret-needs-use-label.
func TestErrorNamesWhatIsMissing(t *testing.T) {
	creds, boot := secret("creds", "token", "t"), secret("boot", "userData", "x")
	both := byClass()
	both.Spec.Provider = "sim"
	half := inline()
	half.Spec.ProviderSpec = nil
	unspecified := class()
	unspecified.Spec.ProviderSpec = nil
	for name, test := range map[string]struct {
		machine *v1beta1.Machine
		objects []client.Object
		reason  string
		text    string
	}{
		"class":       {byClass(), []client.Object{creds, boot}, v1beta1.ReasonClassNotFound, `"c"`},
		"credentials": {byClass(), []client.Object{class(), boot}, v1beta1.ReasonCredentialsNotFound, `"creds"`},
		"empty credentials": {byClass(), []client.Object{class(), empty(secret("creds", "", "")), boot},
			v1beta1.ReasonCredentialsNotFound, `"creds"`},
		"user data":            {byClass(), []client.Object{class(), creds}, v1beta1.ReasonUserDataNotFound, `"boot"`},
		"key of the user data": {inline(), []client.Object{creds, boot}, v1beta1.ReasonUserDataNotFound, `"other"`},
		"blank user data": {byClass(), []client.Object{class(), creds, secret("boot", "userData", " \n")},
			v1beta1.ReasonUserDataNotFound, `"userData"`},
		"label of the credentials": {byClass(), []client.Object{class(), labelledFor("", creds), boot},
			v1beta1.ReasonSecretNotLabelled,
			"kubectl label secret creds --namespace=ns machinist.dev/secret-use=credentials"},
		"label of the user data": {byClass(), []client.Object{class(), creds, labelledFor("", boot)},
			v1beta1.ReasonSecretNotLabelled,
			"kubectl label secret boot --namespace=ns machinist.dev/secret-use=user-data"},
		"label of inline credentials": {inline(), []client.Object{labelledFor("", creds), boot}, v1beta1.ReasonSecretNotLabelled,
			`"creds"`},
		"credentials for user data": {byClass(),
			[]client.Object{class(), creds, labelledFor(v1beta1.SecretUseCredentials, boot)}, v1beta1.ReasonSecretNotLabelled,
			"machinist.dev/secret-use=credentials-and-user-data --overwrite"},
		"a label of another value": {byClass(), []client.Object{class(), labelledFor("true", creds), boot},
			v1beta1.ReasonSecretNotLabelled,
			"machinist.dev/secret-use=credentials --overwrite"},
		"no specification": {&v1beta1.Machine{ObjectMeta: named("m")}, nil, v1beta1.ReasonInvalidConfiguration,
			"neither"},
		"half an inline specification": {half, nil, v1beta1.ReasonInvalidConfiguration, "providerSpec"},
		"two specifications":           {both, []client.Object{class(), creds, boot}, v1beta1.ReasonInvalidConfiguration, "both"},
		"providerSpec of the class": {byClass(), []client.Object{unspecified, creds, boot},
			v1beta1.ReasonInvalidConfiguration, `"c"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := resolver(t, test.objects...).Resolve(t.Context(), test.machine)
			e, ok := errors.AsType[*resolve.Error](err)
			if !ok || e.Reason != test.reason || !strings.Contains(e.Message, test.text) {
				t.Errorf("got %v, want %s with the text %s", err, test.reason, test.text)
			}
		})
	}
}

// Rule: secret-needs-use-label.
func TestDeletionNeedsOnlyTheStatus(t *testing.T) {
	launched := func(m *v1beta1.Machine) *v1beta1.Machine {
		m.Status.Instance = &v1beta1.InstanceStatus{Provider: "sim", CredentialsRef: &v1beta1.LocalRef{Name: "old-creds"}}
		return m
	}
	creds, old := secret("creds", "token", "new"), secret("old-creds", "token", "old")
	for name, test := range map[string]struct {
		machine        *v1beta1.Machine
		objects        []client.Object
		provider, spec string
		token          string
		reason         string
	}{
		"class and its credentials": {launched(byClass()), []client.Object{class(), creds, old}, "sim", `{"a":1}`,
			"new", ""},
		"class without user data":          {byClass(), []client.Object{class(), creds}, "sim", `{"a":1}`, "new", ""},
		"class deleted":                    {launched(byClass()), []client.Object{creds, old}, "sim", "", "old", ""},
		"credentials of the class deleted": {launched(byClass()), []client.Object{class(), old}, "sim", `{"a":1}`, "old", ""},
		"class exists, all Secrets deleted": {launched(byClass()), []client.Object{class()}, "", "", "",
			v1beta1.ReasonCredentialsNotFound},
		"class and credentials deleted": {launched(byClass()), nil, "", "", "", v1beta1.ReasonCredentialsNotFound},
		"credentials of the class not labelled": {launched(byClass()), []client.Object{class(), labelledFor("", creds), old},
			"sim", `{"a":1}`, "old", ""},
		"recorded credentials not labelled": {launched(byClass()), []client.Object{labelledFor("", old)}, "", "", "",
			v1beta1.ReasonSecretNotLabelled},
		"recorded Secret labelled for user data": {launched(byClass()),
			[]client.Object{labelledFor(v1beta1.SecretUseUserData, old)}, "", "", "", v1beta1.ReasonSecretNotLabelled},
		"credentials not labelled and not recorded": {inline(), []client.Object{labelledFor("", creds)}, "", "", "",
			v1beta1.ReasonSecretNotLabelled},
		"inline":                      {inline(), []client.Object{creds}, "sim", `{"b":2}`, "new", ""},
		"inline, credentials deleted": {inline(), nil, "", "", "", v1beta1.ReasonCredentialsNotFound},
		"class never existed":         {byClass(), nil, "", "", "", ""},
		"recorded without credentials": {&v1beta1.Machine{ObjectMeta: named("m"), Spec: byClass().Spec,
			Status: v1beta1.MachineStatus{Instance: &v1beta1.InstanceStatus{Provider: "sim"}}}, nil, "sim", "", "", ""},
		"no specification": {launched(&v1beta1.Machine{ObjectMeta: named("m")}), []client.Object{old}, "sim",
			"", "old", ""},
		"empty credentials": {byClass(), []client.Object{class(), empty(secret("creds", "", ""))}, "", "", "",
			v1beta1.ReasonCredentialsNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := resolver(t, test.objects...).ResolveForDeletion(t.Context(), test.machine)
			if test.reason != "" {
				if e, ok := errors.AsType[*resolve.Error](err); !ok || e.Reason != test.reason {
					t.Errorf("got %v, want %s", err, test.reason)
				}
				return
			}
			token, _ := got.Credentials.Get("token")
			if err != nil || got.Provider != test.provider || string(got.ProviderSpec) != test.spec ||
				string(token.Reveal()) != test.token {
				t.Errorf("got provider %q, spec %s, token %q, error %v", got.Provider, got.ProviderSpec, token.Reveal(), err)
			}
			if (got.CredentialsRef != nil) != (test.token != "") {
				t.Errorf("credentialsRef %v", got.CredentialsRef)
			}
		})
	}
}

// A failed read must be retried, but a missing object must not. So the resolver must not report a failed read as a
// missing object.
func TestFailedReadIsNotAMissingObject(t *testing.T) {
	boom := errors.New("boom")
	broken := fake.NewClientBuilder().WithScheme(scheme(t)).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return boom
		},
	}).Build()
	working := resolver(t, class(), secret("creds", "token", "t"), secret("boot", "userData", "x")).Classes
	for name, r := range map[string]*resolve.Resolver{
		"classes": {Classes: broken, Secrets: working},
		"Secrets": {Classes: working, Secrets: broken},
	} {
		_, launch := r.Resolve(t.Context(), byClass())
		_, deletion := r.ResolveForDeletion(t.Context(), byClass())
		for operation, err := range map[string]error{"Resolve": launch, "ResolveForDeletion": deletion} {
			if _, missing := errors.AsType[*resolve.Error](err); missing || !errors.Is(err, boom) {
				t.Errorf("%s with broken %s: %v", operation, name, err)
			}
		}
	}
	if _, err := (&resolve.Resolver{Classes: broken}).Provider(t.Context(), byClass()); !errors.Is(err, boom) {
		t.Errorf("Provider: %v", err)
	}
}

// The provider may be permitted to read only some Secrets.
func TestSecretThatMayNotBeReadIsReported(t *testing.T) {
	forbidden := fake.NewClientBuilder().WithScheme(scheme(t)).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return apierrors.NewForbidden(corev1.Resource("secrets"), key.Name, nil)
		},
	}).Build()
	r := &resolve.Resolver{Classes: resolver(t, class()).Classes, Secrets: forbidden}
	for name, call := range map[string]func(context.Context, *v1beta1.Machine) (resolve.Inputs, error){
		"launch": r.Resolve, "deletion": r.ResolveForDeletion} {
		_, err := call(t.Context(), byClass())
		reported, ok := errors.AsType[*resolve.Error](err)
		const want = `The provider may not read Secret "creds" in namespace "ns". Add the namespace to the value ` +
			`secretNamespaces of the chart machinist-provider.`
		if !ok || !reported.Forbidden || reported.Reason != v1beta1.ReasonCredentialsNotFound || reported.Message != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

func TestProvider(t *testing.T) {
	for want, test := range map[string]struct {
		machine *v1beta1.Machine
		objects []client.Object
	}{
		"sim": {byClass(), []client.Object{class()}},
		"":    {byClass(), nil},
		"own": {&v1beta1.Machine{Spec: v1beta1.MachineSpec{Provider: "own"}}, nil},
	} {
		if got, err := resolver(t, test.objects...).Provider(t.Context(), test.machine); got != want || err != nil {
			t.Errorf("got %q %v, want %q", got, err, want)
		}
	}
}

func TestSpecHashDoesNotDependOnTheEncoding(t *testing.T) {
	hash := func(text string) string { return resolve.Inputs{ProviderSpec: []byte(text)}.SpecHash() }
	base := hash(`{"a":1,"b":{"c":[1,2],"d":12345678901234567890}}`)
	if got := hash("{ \"b\": {\"d\":12345678901234567890,\"c\":[1, 2]},\n\"a\":1}"); got != base || len(got) != 32 {
		t.Errorf("the hash depends on order or white space: %s, %s", got, base)
	}
	for _, other := range []string{`{"a":1,"b":{"c":[2,1],"d":12345678901234567890}}`,
		`{"a":1,"b":{"c":[1,2],"d":12345678901234567891}}`, `{}`, `{`, `[`} {
		if hash(other) == base {
			t.Errorf("%s has the same hash", other)
		}
	}
	if hash(`{`) == hash(`[`) || hash("") != "" {
		t.Error("invalid JSON must have a hash of its text, and an empty providerSpec an empty hash")
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	const hidden = "hunter2"
	r := resolver(t, class(), secret("creds", "token", hidden), secret("boot", "userData", hidden))
	got, err := r.Resolve(t.Context(), byClass())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+"\n", got)
		fmt.Fprintf(&out, verb+"\n", &got)
	}
	encoded, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(encoded)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "resolved", got, "template", got.UserData)
	slog.New(slog.NewTextHandler(&out, nil)).Info("m", "resolved", got, "template", got.UserData)
	for _, form := range []string{hidden, fmt.Sprintf("%x", hidden), "aHVudGVyMg",
		strings.Trim(fmt.Sprint([]byte(hidden)), "[]")} {
		if strings.Contains(out.String(), form) {
			t.Errorf("the secret was printed as %q in\n%s", form, out.String())
		}
	}
}

// Rule: secrets-cached-as-metadata.
func TestSecretTriggersOnlyMachinesThatWaitForIt(t *testing.T) {
	other := class()
	other.Name, other.Spec.CredentialsRef = "other", &v1beta1.LocalRef{Name: "other-creds"}
	now := metav1.Now()
	machine := func(name, class string, changes ...func(*v1beta1.Machine)) *v1beta1.Machine {
		m := &v1beta1.Machine{ObjectMeta: named(name), Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: class}}}
		for _, change := range changes {
			change(m)
		}
		return m
	}
	adopts := func(m *v1beta1.Machine) { m.Spec.ProviderID = "sim://r/z/i-1" }
	launched := func(m *v1beta1.Machine) {
		adopts(m)
		m.Status.Instance = &v1beta1.InstanceStatus{}
		m.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionUpToDate, Status: metav1.ConditionTrue}}
	}
	changed := func(m *v1beta1.Machine) { launched(m); m.Generation = 2 }
	updating := func(m *v1beta1.Machine) { launched(m); m.Status.Conditions[0].Status = metav1.ConditionFalse }
	deleting := func(m *v1beta1.Machine) { m.DeletionTimestamp, m.Finalizers = &now, []string{v1beta1.MachineFinalizer} }
	ofSecret := inline()
	ofSecret.Name = "inline"
	elsewhere := machine("elsewhere", "c")
	elsewhere.Namespace = "other"
	c := fake.NewClientBuilder().WithScheme(scheme(t)).
		WithIndex(&v1beta1.MachineClass{}, resolve.ClassBySecret, func(o client.Object) []string {
			return resolve.SecretNames(o.(*v1beta1.MachineClass))
		}).
		WithIndex(&v1beta1.Machine{}, index.MachineByClass, func(o client.Object) []string {
			if ref := o.(*v1beta1.Machine).Spec.ClassRef; ref != nil {
				return []string{ref.Name}
			}
			return nil
		}).
		WithIndex(&v1beta1.Machine{}, index.MachineBySecret, func(o client.Object) []string {
			if ref := o.(*v1beta1.Machine).Spec.CredentialsRef; ref != nil {
				return []string{ref.Name}
			}
			return nil
		}).
		WithObjects(class(), other, ofSecret, elsewhere,
			machine("waits", "c"), machine("adopts", "c", adopts), machine("runs", "c", launched),
			machine("changed", "c", changed), machine("updating", "c", updating), machine("goes", "c", launched, deleting),
			machine("others", "other")).
		Build()
	names := func(requests []reconcile.Request) []string {
		var names []string
		for _, r := range requests {
			names = append(names, r.String())
		}
		slices.Sort(names)
		return names
	}
	for what, test := range map[string]struct{ got, want []string }{
		"a Secret": {names(resolve.MachinesOfSecret(c)(t.Context(), secret("creds", "", ""))),
			[]string{"ns/adopts", "ns/changed", "ns/goes", "ns/inline", "ns/updating", "ns/waits"}},
		"a class": {names(resolve.MachinesOfClass(c)(t.Context(), class())),
			[]string{"ns/adopts", "ns/changed", "ns/goes", "ns/updating", "ns/waits"}},
		"a Secret with user data of two classes": {names(resolve.MachinesOfSecret(c)(t.Context(), secret("boot", "", ""))),
			[]string{"ns/adopts", "ns/changed", "ns/goes", "ns/others", "ns/updating", "ns/waits"}},
		"a Secret without a reference": {names(resolve.MachinesOfSecret(c)(t.Context(), secret("unrelated", "", ""))),
			nil},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("%s triggers %v, want %v", what, test.got, test.want)
		}
	}
}
