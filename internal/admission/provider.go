package admission

import (
	"bytes"
	"context"
	"errors"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// Provider is the webhook of one provider. Provider validates the providerSpec of classes, machines and templates.
type Provider struct {
	decoder admission.Decoder
	driver  provider.Driver
}

// NewProvider returns the handler of a provider's webhook. The scheme must have the core kinds.
func NewProvider(scheme *runtime.Scheme, driver provider.Driver) *Provider {
	return &Provider{decoder: admission.NewDecoder(scheme), driver: driver}
}

// Handle answers one request. The validation works without credentials, because the Secret may be created after the
// class.
func (p *Provider) Handle(ctx context.Context, r admission.Request) admission.Response {
	template := func(t *v1beta1.MachineTemplateSpec) Result {
		return p.spec(ctx, field.NewPath("spec", "template", "spec"), t.Spec.Provider, t.Spec.ProviderSpec)
	}
	switch r.Kind.Kind {
	case "MachineClass":
		return review(p.decoder, r, func(c *v1beta1.MachineClass, _ bool) Result {
			return p.spec(ctx, field.NewPath("spec"), c.Spec.Provider, c.Spec.ProviderSpec)
		})
	case "Machine":
		return review(p.decoder, r, func(m *v1beta1.Machine, _ bool) Result {
			return p.spec(ctx, field.NewPath("spec"), m.Spec.Provider, m.Spec.ProviderSpec)
		})
	case "MachineSet":
		return review(p.decoder, r, func(m *v1beta1.MachineSet, _ bool) Result { return template(&m.Spec.Template) })
	case "MachineDeployment":
		return review(p.decoder, r, func(d *v1beta1.MachineDeployment, _ bool) Result { return template(&d.Spec.Template) })
	}
	return admission.Allowed("")
}

func (p *Provider) spec(ctx context.Context, path *field.Path, name string, spec *runtime.RawExtension) (v Result) {
	if name != p.driver.Name() || spec == nil {
		return v
	}
	path = path.Child("providerSpec")
	if len(spec.Raw) > provider.MaxSpecBytes {
		v.refuse(field.TooLong(path, "", provider.MaxSpecBytes))
		return v
	}
	err := p.validate(ctx, bytes.Clone(spec.Raw))
	if err == nil {
		return v
	}
	problem, ok := errors.AsType[*provider.Error](err)
	if ok && problem.Field != "" {
		path = path.Child(problem.Field)
	}
	switch {
	case ok && problem.Code == provider.FailedPrecondition:
		v.warn(path, "no machine can be created from it at present: %s", problem.Message)
		return v
	case !ok || problem.Code != provider.InvalidArgument:
		// The driver validates the providerSpec again before it creates an instance.
		v.warn(path, "the provider could not validate it: %v", err)
		return v
	}
	v.refuse(&field.Error{Type: field.ErrorTypeInvalid, Field: path.String(), BadValue: field.OmitValueType{},
		Detail: problem.Message})
	return v
}

func (p *Provider) validate(ctx context.Context, spec []byte) (err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			// The panic value may contain the specification, so it is not logged.
			err = provider.Errorf(provider.Internal, "the driver panicked")
			logf.FromContext(ctx).Error(err, "Recovered from a panic", "stack", string(debug.Stack()))
		}
	}()
	return p.driver.Validate(ctx, provider.ValidateRequest{Class: provider.Class{Spec: spec}})
}
