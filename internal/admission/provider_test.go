package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

type strict struct {
	provider.Driver
	validate func(spec string) error
}

func (strict) Name() string { return "strict" }

func (s strict) Validate(_ context.Context, r provider.ValidateRequest) error {
	if !r.Class.Credentials.IsEmpty() {
		return errors.New("the request has credentials")
	}
	return s.validate(string(r.Class.Spec))
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(v1beta1.AddToScheme(s))
	return s
}

// request returns the admission request for a change of an object. If the object before the change is nil, the request
// is a creation.
func request(t *testing.T, kind string, now, before client.Object) admission.Request {
	t.Helper()
	raw := func(o client.Object) []byte {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	r := admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind{Group: v1beta1.GroupName, Version: v1beta1.Version, Kind: kind},
		Name: now.GetName(), Namespace: "default", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw(now)},
	}
	if before != nil {
		r.Operation, r.OldObject.Raw = admissionv1.Update, raw(before)
	}
	return admission.Request{AdmissionRequest: r}
}

func carriers(name, spec string) map[string]struct {
	object client.Object
	path   string
} {
	inline := v1beta1.MachineSpec{Provider: name, ProviderSpec: &runtime.RawExtension{Raw: []byte(spec)}}
	meta, template := metav1.ObjectMeta{Name: "one"}, v1beta1.MachineTemplateSpec{Spec: inline}
	return map[string]struct {
		object client.Object
		path   string
	}{
		"MachineClass": {&v1beta1.MachineClass{ObjectMeta: meta, Spec: v1beta1.MachineClassSpec{Provider: name,
			ProviderSpec: inline.ProviderSpec}}, "spec.providerSpec"},
		"Machine": {&v1beta1.Machine{ObjectMeta: meta, Spec: inline}, "spec.providerSpec"},
		"MachineSet": {&v1beta1.MachineSet{ObjectMeta: meta, Spec: v1beta1.MachineSetSpec{Template: template}},
			"spec.template.spec.providerSpec"},
		"MachineDeployment": {&v1beta1.MachineDeployment{ObjectMeta: meta,
			Spec: v1beta1.MachineDeploymentSpec{Template: template}}, "spec.template.spec.providerSpec"},
	}
}

// Rule: provider-webhook-refuses.
func TestDriverErrorsAreReportedByField(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		field   string // path below providerSpec
		detail  string
		warning string
	}{
		"nothing": {},
		"a field": {err: provider.InvalidField("disk.sizeGiB", "must be positive"), field: ".disk.sizeGiB",
			detail: "must be positive"},
		"no field": {err: provider.Errorf(provider.InvalidArgument, "is nonsense"), detail: "is nonsense"},
		"wrapped": {err: fmt.Errorf("validate: %w", provider.InvalidField("size", "is required")), field: ".size",
			detail: "is required"},
		"failed precondition": {err: &provider.Error{Code: provider.FailedPrecondition, Field: "image", Message: "is gone"},
			warning: ".image: no machine can be created from it at present: is gone"},
		"no answer": {err: provider.Errorf(provider.Unavailable, "try later"),
			warning: ": the provider could not validate it: Unavailable: try later"},
		"no code":          {err: errors.New("whatever"), warning: ": the provider could not validate it: whatever"},
		"another provider": {err: errors.New("not asked")},
	} {
		t.Run(name, func(t *testing.T) {
			of := "strict"
			if name == "another provider" {
				of = "another"
			}
			handler := NewProvider(scheme(), strict{validate: func(string) error { return test.err }})
			for kind, carrier := range carriers(of, `{"disk":{"sizeGiB":0}}`) {
				answer := handler.Handle(t.Context(), request(t, kind, carrier.object, nil))
				if refused := test.detail != ""; answer.Allowed == refused {
					t.Errorf("%s: allowed=%v: %v", kind, answer.Allowed, answer.Result)
				} else if refused {
					causes := answer.Result.Details.Causes
					if answer.Result.Code != 422 || len(causes) != 1 || causes[0].Field != carrier.path+test.field ||
						!strings.Contains(causes[0].Message, test.detail) {
						t.Errorf("%s: refused with %d %+v, want the field %s", kind, answer.Result.Code, causes, carrier.path+test.field)
					}
				}
				if want := carrier.path + test.warning; test.warning != "" &&
					(len(answer.Warnings) != 1 || answer.Warnings[0] != want) {
					t.Errorf("%s: warned of %q, want %q", kind, answer.Warnings, want)
				} else if test.warning == "" && len(answer.Warnings) > 0 {
					t.Errorf("%s: warned of %q", kind, answer.Warnings)
				}
			}
		})
	}
}

// Rule: provider-webhook-refuses.
func TestPanicOfDriverRefusesNothing(t *testing.T) {
	handler := NewProvider(scheme(), strict{validate: func(spec string) error { panic(spec) }})
	for kind, carrier := range carriers("strict", `{"secret":1}`) {
		answer := handler.Handle(t.Context(), request(t, kind, carrier.object, nil))
		if !answer.Allowed || len(answer.Warnings) != 1 || strings.Contains(answer.Warnings[0], "secret") {
			t.Errorf("%s: allowed=%v %q", kind, answer.Allowed, answer.Warnings)
		}
	}
}

// Rule: provider-webhook-refuses.
func TestTooLargeProviderSpecIsNotPassedToDriver(t *testing.T) {
	handler := NewProvider(scheme(), strict{validate: func(string) error { t.Error("the driver was called"); return nil }})
	for kind, carrier := range carriers("strict", `{"a":"`+strings.Repeat("x", provider.MaxSpecBytes)+`"}`) {
		answer := handler.Handle(t.Context(), request(t, kind, carrier.object, nil))
		if answer.Allowed || answer.Result.Details.Causes[0].Field != carrier.path {
			t.Errorf("%s: allowed=%v %v", kind, answer.Allowed, answer.Result)
		}
	}
}
