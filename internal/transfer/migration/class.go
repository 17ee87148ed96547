package migration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

// class is a description of instances that old objects share, and the MachineClass that it becomes.
type class struct {
	name string
	old  *source.Class
	// from is the first object that uses the description, for findings.
	from string

	// searched is true if the cloud has returned the instances of the class.
	searched bool
	legacy   provider.Legacy

	object *v1beta1.MachineClass
	// secrets are the Secrets of the class that the migration creates.
	secrets []*corev1.Secret
}

// dnsLabel matches a name of an old provider that a class name can begin with.
var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?$`)

// className returns the name of the class for a description.
func className(old *source.Class) string {
	if old.Name != "" {
		return old.Name
	}
	prefix := strings.ToLower(old.Provider)
	if !dnsLabel.MatchString(prefix) {
		prefix = "class"
	}
	return old.ContentName(prefix)
}

// findInstances reads the Secrets and ConfigMaps of the description, and returns the instances that the old system
// created from it.
func (p *planner) findInstances(ctx context.Context, c *class) ([]provider.Located, error) {
	spec := runtime.DeepCopyJSON(c.old.Spec)
	ok := true
	for _, value := range c.old.Values {
		data, problem, err := p.secrets.entry(ctx, value.From)
		if err != nil {
			return nil, err
		}
		if problem != "" {
			p.blockf(CodeSecretUnreadable, c.from, c.old.Path+"."+strings.Join(value.Path, "."), "%s", problem)
			ok = false
			continue
		}
		setPath(spec, value.Path, string(data))
	}
	credentials := map[string][]byte{}
	for _, name := range c.old.Credentials {
		data, problem, err := p.secrets.all(ctx, "Secret", name)
		if err != nil {
			return nil, err
		}
		if problem != "" {
			p.blockf(CodeSecretUnreadable, c.from, c.old.Path, "%s", problem)
			ok = false
			continue
		}
		maps.Copy(credentials, data)
	}
	if ref := p.migration.Spec.CredentialsRef; ref != nil {
		data, problem, err := p.secrets.all(ctx, "Secret", types.NamespacedName{Namespace: p.migration.Namespace,
			Name: ref.Name})
		if err != nil {
			return nil, err
		}
		if problem != "" {
			p.blockf(CodeSecretUnreadable, "Migration/"+p.migration.Name, "spec.credentialsRef", "%s", problem)
			ok = false
		}
		maps.Copy(credentials, data)
	}
	if !ok {
		return nil, nil
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode the description of class %s: %w", c.name, err)
	}
	c.legacy = provider.Legacy{Source: p.system.Group(), Provider: c.old.Provider, Spec: provider.NewSecret(raw),
		Credentials: provider.NewCredentials(credentials)}
	all, err := p.cloud.Locate(ctx, provider.LocateRequest{Legacy: c.legacy})
	switch code := provider.CodeOf(err); {
	case err == nil:
		c.searched = true
	case code == provider.Unimplemented:
		p.blockf(CodeCannotImport, c.from, "", "%s", message(err))
	case code == provider.InvalidArgument || code == provider.FailedPrecondition || code == provider.Unauthenticated ||
		code == provider.PermissionDenied:
		p.blockf(CodeCannotImport, c.from, c.old.Path, "The instances of the class cannot be listed: %s", message(err))
	default:
		return nil, fmt.Errorf("find the instances of class %s: %w", c.name, err)
	}
	return all, nil
}

// convert creates the MachineClass and its Secrets. facts are the facts about an instance of the class, or nil.
func (p *planner) convert(ctx context.Context, c *class, facts []byte) error {
	if c.legacy.Source == "" {
		return nil // findInstances has reported why the description could not be read.
	}
	imported, err := p.cloud.Import(ctx, provider.ImportRequest{Legacy: c.legacy, Facts: facts})
	switch code := provider.CodeOf(err); {
	case err == nil:
	case code == provider.Unimplemented:
		return nil // findInstances has reported it.
	case code == provider.InvalidArgument || code == provider.Internal:
		p.blockf(CodeClassInvalid, c.from, c.old.Path, "The driver cannot read the description: %s", message(err))
		return nil
	default:
		return fmt.Errorf("convert class %s: %w", c.name, err)
	}
	c.object = &v1beta1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.migration.Namespace, Name: c.name},
		Spec: v1beta1.MachineClassSpec{
			Provider: p.migration.Spec.Provider, ProviderSpec: &runtime.RawExtension{Raw: imported.Spec},
			Adoption: v1beta1.AdoptionAllow, Capacity: c.old.Capacity.DeepCopy(),
		},
	}
	p.mark(c.object, c.from)
	if len(imported.Credentials) > 0 {
		c.object.Spec.CredentialsRef = &v1beta1.LocalRef{Name: c.name + "-credentials"}
		c.secrets = append(c.secrets, p.secret(c, c.name+"-credentials", v1beta1.SecretUseCredentials, imported.Credentials))
	}
	if err := p.userData(ctx, c); err != nil {
		return err
	}
	overridden := p.override(c)
	problem := p.validate(ctx, c, imported.Credentials)
	for _, finding := range imported.Findings {
		settled := finding.Code == provider.FindingRequiredField || finding.Code == provider.FindingInvalidField
		if finding.Level == provider.FindingBlocker && settled && overridden && problem == "" {
			continue // The override has set what was missing.
		}
		finding.Path = strings.Trim(c.old.Path+"."+finding.Path, ".")
		p.plan.findings.add(c.from, finding)
	}
	if problem != "" {
		p.blockf(CodeClassInvalid, c.from, c.old.Path, "Provider %s refuses the class %s: %s Correct the class with "+
			"spec.overrides.", p.cloud.Name(), c.name, problem)
	}
	return nil
}

// userData gives the class the user data of the old one, or the user data that the Migration names.
func (p *planner) userData(ctx context.Context, c *class) error {
	ref := c.old.UserData
	if ref == nil {
		if given := p.migration.Spec.UserDataRef; given != nil {
			c.object.Spec.UserDataRef = given.DeepCopy()
			return nil
		}
		p.plan.findings.addf(provider.FindingLoss, CodeNoUserData, c.from, "",
			"The old system generated the user data itself. New machines of class %s get no user data unless "+
				"spec.userDataRef names a Secret with a template.", c.name)
		return nil
	}
	data, problem, err := p.secrets.entry(ctx, *ref)
	if err != nil {
		return err
	}
	if problem != "" {
		p.blockf(CodeSecretUnreadable, c.from, "", "%s", problem)
		return nil
	}
	name := c.name + "-user-data"
	c.object.Spec.UserDataRef = &v1beta1.UserDataRef{Name: name, Key: v1beta1.DefaultUserDataKey}
	c.secrets = append(c.secrets, p.secret(c, name, v1beta1.SecretUseUserData,
		map[string][]byte{v1beta1.DefaultUserDataKey: data}))
	return nil
}

func (p *planner) secret(c *class, name, use string, data map[string][]byte) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.migration.Namespace, Name: name,
		Labels: map[string]string{v1beta1.LabelSecretUse: use}}, Type: corev1.SecretTypeOpaque, Data: data}
	p.mark(secret, c.from)
	return secret
}

// override applies the override of the class, and reports whether there is one.
func (p *planner) override(c *class) bool {
	i := slices.IndexFunc(p.migration.Spec.Overrides, func(o v1beta1.MigrationOverride) bool { return o.Class == c.name })
	if i < 0 {
		return false
	}
	path := fmt.Sprintf("spec.overrides[%d].patch", i)
	from := "Migration/" + p.migration.Name
	before, _ := json.Marshal(c.object.Spec) // A value that was decoded from JSON can be encoded.
	after, err := jsonpatch.MergePatch(before, p.migration.Spec.Overrides[i].Patch.Raw)
	if err != nil {
		p.blockf(CodeClassInvalid, from, path, "The patch is not a JSON merge patch for the spec of class %s: %v", c.name,
			err)
		return true
	}
	var spec v1beta1.MachineClassSpec
	decoder := json.NewDecoder(bytes.NewReader(after))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&spec); err != nil {
		p.blockf(CodeClassInvalid, from, path, "With the patch, the spec of class %s is not valid for a MachineClass: %v",
			c.name, err)
		return true
	}
	if spec.Provider != p.migration.Spec.Provider || spec.ProviderSpec == nil || spec.Adoption != v1beta1.AdoptionAllow {
		p.blockf(CodeClassInvalid, from, path, "The patch must not change provider and adoption of class %s, and must "+
			"not remove providerSpec.", c.name)
		return true
	}
	c.object.Spec = spec
	return true
}

// validate returns why the driver refuses the class, or "".
func (p *planner) validate(ctx context.Context, c *class, credentials map[string][]byte) (problem string) {
	err := p.cloud.Validate(ctx, provider.ValidateRequest{Class: provider.Class{Spec: c.object.Spec.ProviderSpec.Raw,
		Credentials: provider.NewCredentials(credentials).In(p.migration.Namespace)}})
	if err == nil {
		return ""
	}
	return strings.TrimSuffix(message(err), ".") + "."
}

// message returns the text of a driver's error.
func message(err error) string { return strings.TrimSpace(err.Error()) }

// setPath sets a value in a JSON object. Package source derives the path from that object.
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

// secretReader reads Secrets and ConfigMaps, each once.
type secretReader struct {
	live client.Reader
	seen map[string]content
}

type content struct {
	data    map[string][]byte
	problem string
}

// all returns the entries of a Secret or ConfigMap, or the problem if there is none.
func (r *secretReader) all(ctx context.Context, kind string,
	name types.NamespacedName) (map[string][]byte, string, error) {
	key := kind + "/" + name.String()
	if c, found := r.seen[key]; found {
		return c.data, c.problem, nil
	}
	var c content
	var err error
	switch kind {
	case "Secret":
		secret := &corev1.Secret{}
		err = r.live.Get(ctx, name, secret)
		c.data = secret.Data
	case "ConfigMap":
		configMap := &corev1.ConfigMap{}
		err = r.live.Get(ctx, name, configMap)
		c.data = maps.Clone(configMap.BinaryData)
		for key, value := range configMap.Data {
			if c.data == nil {
				c.data = map[string][]byte{}
			}
			c.data[key] = []byte(value)
		}
	default:
		c.problem = fmt.Sprintf("Values can be read from a Secret or ConfigMap, not from a %s.", kind)
	}
	switch {
	case apierrors.IsNotFound(err):
		c.problem = fmt.Sprintf("%s %s does not exist.", kind, name)
	case err != nil:
		return nil, "", fmt.Errorf("read %s %s: %w", kind, name, err)
	}
	r.seen[key] = c
	return c.data, c.problem, nil
}

// entry returns one entry of a Secret or ConfigMap, or the problem.
func (r *secretReader) entry(ctx context.Context, ref source.KeyRef) ([]byte, string, error) {
	name := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	data, problem, err := r.all(ctx, ref.Kind, name)
	if err != nil || problem != "" {
		return nil, problem, err
	}
	value, found := data[ref.Key]
	if !found {
		return nil, fmt.Sprintf("%s %s has no entry %s.", ref.Kind, name, ref.Key), nil
	}
	return value, "", nil
}
