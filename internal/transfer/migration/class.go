package migration

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

// class combines an instance description of the old system with the new MachineClass. Several old objects can share
// the description.
type class struct {
	name string
	old  *source.Class
	// firstObject is the name of the first old object with this description. Findings about the class refer to this
	// object.
	firstObject string

	// nodeProviderID is spec.nodeProviderID of the new class.
	nodeProviderID string

	// existing is true if the class existed before the migration. The migration does not change such a class.
	existing    bool
	searched    bool
	description description
	legacy      provider.Legacy

	object *v1beta1.MachineClass
	// publishedClass is the MachineClass in the form for the published plan, without values of Secrets.
	publishedClass *v1beta1.MachineClass
	secrets        []*corev1.Secret
}

// classKey identifies a description. Equal descriptions have the same key.
func classKey(old *source.Class) string { return cmp.Or(old.Name, old.ContentName("")) }

// maxClassPrefix limits the part of a class name that comes from an old object.
const maxClassPrefix = 42

// className returns the name of the new class. The name of a class without an old class begins with the name of the
// old object that describes it. The hash distinguishes it from the classes of other objects with that name.
func className(old *source.Class, from string) string {
	if old.Name != "" {
		return old.Name
	}
	name := strings.ReplaceAll(from[strings.Index(from, "/")+1:], ".", "-")
	name = strings.TrimRight(name[:min(len(name), maxClassPrefix)], "-")
	return old.ContentName(cmp.Or(name, "class"))
}

// findInstances reads the Secrets and ConfigMaps of the description, and returns the instances that the old system
// created from the description.
func (p *planner) findInstances(ctx context.Context, c *class) ([]provider.LocatedInstance, error) {
	if !p.canImport(ctx, c) {
		return nil, nil
	}
	complete, err := p.describe(ctx, c)
	if err != nil || !complete {
		return nil, err
	}
	legacy, err := p.legacyOf(c, c.description.spec, c.description.credentials)
	if err != nil || p.lackCredentials(ctx, c, legacy) {
		return nil, err
	}
	c.legacy = legacy
	all, err := p.cloud.Locate(ctx, provider.LocateRequest{Legacy: c.legacy})
	switch code := provider.CodeOf(err); {
	case err == nil:
		c.searched = true
	case code == provider.InvalidArgument || code == provider.FailedPrecondition || code == provider.Unauthenticated ||
		code == provider.PermissionDenied || code == provider.Unimplemented:
		p.blockf(CodeCannotImport, c.firstObject, c.old.Path, "The instances of the class cannot be listed: %s", message(err))
	default:
		return nil, fmt.Errorf("find the instances of class %s: %w", c.name, err)
	}
	return all, nil
}

// canImport reports whether the provider can adopt the instances of a class. It reads no Secrets, because an
// administrator need not correct references to Secrets for a provider of another cloud.
func (p *planner) canImport(ctx context.Context, c *class) bool {
	_, err := p.cloud.Import(ctx, provider.ImportRequest{Legacy: provider.Legacy{Source: p.system.Group(),
		Provider: c.old.Provider, Spec: provider.NewSecret([]byte("{}"))}})
	if code := provider.CodeOf(err); code != provider.Unimplemented && code != provider.InvalidArgument {
		return true
	}
	p.blockOnce(CodeCannotImport, c.firstObject, "", fmt.Sprintf("Provider %s cannot adopt these instances: %s. "+
		"Use the provider of their cloud.", p.cloud.Name(), strings.TrimSuffix(message(err), ".")))
	return false
}

// lackCredentials reports whether the driver needs credentials that the old objects do not contain. Each class with
// the same credentials lacks the same keys, so one Blocker covers all of them.
func (p *planner) lackCredentials(ctx context.Context, c *class, legacy provider.Legacy) bool {
	imported, err := p.cloud.Import(ctx, provider.ImportRequest{Legacy: legacy})
	i := slices.IndexFunc(imported.Findings, func(f provider.Finding) bool {
		return f.Code == provider.FindingMissingCredentials
	})
	if err != nil || i < 0 {
		return false // convert reports the error.
	}
	p.blockOnce(provider.FindingMissingCredentials, c.firstObject, "", fmt.Sprintf("Provider %s: %s. The old controller "+
		"may read them from its environment. Create a Secret with these keys in namespace %s, and name it: machinist "+
		"migrate plan %s -n %[3]s --credentials SECRET", p.cloud.Name(), imported.Findings[i].Message,
		p.migration.Namespace, p.migration.Name))
	return true
}

// convert creates the MachineClass and its Secrets. facts describe one instance of the class, if there is one.
func (p *planner) convert(ctx context.Context, c *class, facts []byte) error {
	if c.legacy.Source == "" {
		return nil // findInstances has reported the problem.
	}
	imported, err := p.cloud.Import(ctx, provider.ImportRequest{Legacy: c.legacy, Facts: facts})
	switch code := provider.CodeOf(err); {
	case err == nil:
	case code == provider.InvalidArgument || code == provider.Internal || code == provider.Unimplemented:
		p.blockf(CodeClassInvalid, c.firstObject, c.old.Path, "The driver cannot read the description: %s", message(err))
		return nil
	default:
		return fmt.Errorf("convert class %s: %w", c.name, err)
	}
	c.object = &v1beta1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.migration.Namespace, Name: c.name},
		Spec: v1beta1.MachineClassSpec{
			Provider: p.migration.Spec.Provider, ProviderSpec: &runtime.RawExtension{Raw: imported.Spec},
			Adoption: v1beta1.AdoptionAllow, Capacity: c.old.Capacity.DeepCopy(), NodeProviderID: c.nodeProviderID,
		},
	}
	p.mark(c.object, c.firstObject)
	if len(imported.Credentials) > 0 {
		c.object.Spec.CredentialsRef = &v1beta1.LocalRef{Name: c.name + "-credentials"}
		c.secrets = append(c.secrets, p.secret(c, c.name+"-credentials", v1beta1.SecretUseCredentials, imported.Credentials))
	}
	if err := p.userData(ctx, c); err != nil {
		return err
	}
	converted := c.object.Spec.DeepCopy()
	overridden := p.override(c)
	problem := p.validate(ctx, c, imported.Credentials)
	if err := p.hideSecrets(ctx, c, converted, facts); err != nil {
		return err
	}
	for _, finding := range imported.Findings {
		settled := finding.Code == provider.FindingRequiredField || finding.Code == provider.FindingInvalidField
		if finding.Level == provider.FindingBlocker && settled && overridden && problem == "" {
			continue
		}
		finding.Path = strings.Trim(c.old.Path+"."+finding.Path, ".")
		p.plan.findings.add(c.firstObject, finding)
	}
	if problem != "" {
		p.blockf(CodeClassInvalid, c.firstObject, c.old.Path, "Provider %s refuses the class %s: %s Correct the class with "+
			"spec.overrides.", p.cloud.Name(), c.name, problem)
	}
	return nil
}

func (p *planner) secret(c *class, name, use string, data map[string][]byte) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.migration.Namespace, Name: name,
		Labels: map[string]string{v1beta1.LabelSecretUse: use}}, Type: corev1.SecretTypeOpaque, Data: data}
	p.mark(secret, c.firstObject)
	return secret
}

func (p *planner) overrideOf(c *class) int {
	return slices.IndexFunc(p.migration.Spec.Overrides, func(o v1beta1.MigrationOverride) bool {
		return o.Class == c.name
	})
}

// override patches the class with its entry in spec.overrides of the Migration. It returns false if there is no
// entry.
func (p *planner) override(c *class) bool {
	i := p.overrideOf(c)
	if i < 0 {
		return false
	}
	spec, problem := p.patched(c.object.Spec, p.migration.Spec.Overrides[i].Patch.Raw)
	if problem != "" {
		p.blockf(CodeClassInvalid, "Migration/"+p.migration.Name, fmt.Sprintf("spec.overrides[%d].patch", i),
			"With the patch, the spec of class %s is not valid: %s", c.name, problem)
		return true
	}
	c.object.Spec = spec
	return true
}

// patched returns the spec after a JSON merge patch, or why the patch is invalid.
func (p *planner) patched(from v1beta1.MachineClassSpec, patch []byte) (spec v1beta1.MachineClassSpec, problem string) {
	before, _ := json.Marshal(from) // Decoded JSON can always be encoded.
	after, err := jsonpatch.MergePatch(before, patch)
	if err != nil {
		return spec, fmt.Sprintf("the patch is not a JSON merge patch: %v", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(after))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&spec); err != nil {
		return spec, err.Error()
	}
	if spec.Provider != p.migration.Spec.Provider || spec.ProviderSpec == nil || spec.Adoption != v1beta1.AdoptionAllow {
		return spec, "the patch must not change provider and adoption, and must not remove providerSpec."
	}
	return spec, ""
}

func (p *planner) validate(ctx context.Context, c *class, credentials map[string][]byte) (problem string) {
	err := p.cloud.Validate(ctx, provider.ValidateRequest{Class: provider.Class{Spec: c.object.Spec.ProviderSpec.Raw,
		Credentials: provider.NewCredentials(credentials).InNamespace(p.migration.Namespace)}})
	if err == nil {
		return ""
	}
	return strings.TrimSuffix(message(err), ".") + "."
}

func message(err error) string { return strings.TrimSpace(err.Error()) }

// setPath sets a value in a JSON object. The path must exist.
func setPath(object map[string]any, path []string, value string) {
	var at any = object
	for i, key := range path {
		last := i == len(path)-1
		switch holder := at.(type) {
		case map[string]any:
			if last {
				holder[key] = value
				return
			}
			at = holder[key]
		case []any:
			index, err := strconv.Atoi(key)
			if err != nil || index < 0 || index >= len(holder) {
				return
			}
			if last {
				holder[index] = value
				return
			}
			at = holder[index]
		default:
			return
		}
	}
}
