package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

// description is the data from which the old system created instances, with all references resolved.
type description struct {
	spec        map[string]any
	credentials map[string][]byte
	secrets     []secretPart
}

type secretPart struct {
	// path is the path of the reference in the old object. secretName is the Secret's name.
	path, secretName string
	// specPath is the path of the value in the description. If the value belongs to the credentials, specPath is empty.
	specPath []string
	value    string
}

// describe reads the Secrets and ConfigMaps to which the description of a class refers. If a Secret or ConfigMap is
// unusable, describe reports a Blocker and returns false.
func (p *planner) describe(ctx context.Context, c *class) (complete bool, err error) {
	d := description{spec: runtime.DeepCopyJSON(c.old.Spec), credentials: map[string][]byte{}}
	complete = true
	usable := func(problem *unusableError, object, path string) bool {
		if problem != nil {
			p.reportUnusable(problem, object, path, "")
			complete = false
		}
		return problem == nil
	}
	for _, value := range c.old.Values {
		data, problem, err := p.secrets.entry(ctx, value.From)
		if err != nil {
			return false, err
		}
		path := c.old.Path + "." + strings.Join(value.Path, ".")
		if usable(problem, c.firstObject, path) {
			setPath(d.spec, value.Path, string(data))
			d.addSecret(value, path, string(data))
		}
	}
	var names []string
	for _, name := range c.old.Credentials {
		data, problem, err := p.secrets.entries(ctx, "Secret", name)
		if err != nil {
			return false, err
		}
		if usable(problem, c.firstObject, c.old.Path) {
			maps.Copy(d.credentials, data)
			names = append(names, name.String())
		}
	}
	if ref := p.migration.Spec.CredentialsRef; ref != nil {
		name := types.NamespacedName{Namespace: p.migration.Namespace, Name: ref.Name}
		data, problem, err := p.secrets.entriesForMigration(ctx, name)
		if err != nil {
			return false, err
		}
		if usable(problem, "Migration/"+p.migration.Name, "spec.credentialsRef") {
			maps.Copy(d.credentials, data)
			names = append(names, name.String())
		}
	}
	if len(d.credentials) > 0 {
		d.secrets = append(d.secrets, secretPart{path: c.old.Path, secretName: "Secret " + strings.Join(names, " or ")})
	}
	for _, part := range d.secrets {
		p.redactor.add([]byte(part.value))
	}
	for _, value := range d.credentials {
		p.redactor.add(value)
	}
	c.description = d
	return complete, nil
}

// reportUnusable reports an unusable Secret or ConfigMap only once, because many classes and fields may refer to it.
func (p *planner) reportUnusable(problem *unusableError, object, path, help string) {
	p.blockOnce(problem.code, object, path, strings.TrimSpace(problem.message+" "+help))
}

// blockOnce reports a Blocker unless another object has the same one.
func (p *planner) blockOnce(code, object, path, message string) {
	reported := slices.ContainsFunc(p.plan.findings, func(f objectFinding) bool {
		return f.Code == code && f.Message == message
	})
	if !reported {
		p.blockf(code, object, path, "%s", message)
	}
}

func (d *description) addSecret(value source.Value, path, data string) {
	if value.From.Kind != "Secret" {
		return
	}
	d.secrets = append(d.secrets, secretPart{path: path, specPath: value.Path, value: data,
		secretName: fmt.Sprintf("key %s of Secret %s/%s", value.From.Key, value.From.Namespace, value.From.Name)})
}

func (d *description) withPart(part secretPart, change func(string) string) (map[string]any, map[string][]byte) {
	if len(part.specPath) > 0 {
		spec := runtime.DeepCopyJSON(d.spec)
		setPath(spec, part.specPath, change(part.value))
		return spec, d.credentials
	}
	credentials := map[string][]byte{}
	for key, value := range d.credentials {
		credentials[key] = []byte(change(string(value)))
	}
	return d.spec, credentials
}

func (p *planner) legacyOf(c *class, spec map[string]any, credentials map[string][]byte) (provider.Legacy, error) {
	raw, err := json.Marshal(spec)
	if err != nil {
		return provider.Legacy{}, fmt.Errorf("encode the description of class %s: %w", c.name, err)
	}
	return provider.Legacy{Source: p.system.Group(), Provider: c.old.Provider, Spec: provider.NewSecret(raw),
		Credentials: provider.NewCredentials(credentials)}, nil
}
