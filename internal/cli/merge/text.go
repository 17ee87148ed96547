package merge

import (
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/platform/wording"
)

// Text writes the merged deployment as YAML. The sources, the warnings and the steps are comments, so the output is a
// manifest.
func (p *Plan) Text(w io.Writer, s printer.Style) error {
	manifest, err := p.manifest()
	if err != nil {
		return err
	}
	var out strings.Builder
	comment := func(format string, args ...any) { fmt.Fprintf(&out, "# "+format+"\n", args...) }
	for _, source := range p.Sources {
		comment("machinedeployment/%s: %s of class %s become part of domain %s.", source.Name,
			wording.Count(source.Replicas, "machine"), source.Class, source.Domain)
	}
	for _, warning := range p.Warnings {
		comment("%s", s.Warn("Warning: "+printer.Sanitize(warning)))
	}
	comment("With --yes, the command does these steps, and no machine is created, deleted or replaced:")
	for i, step := range p.steps() {
		comment("%d. %s", i+1, step)
	}
	out.WriteString(manifest)
	_, err = io.WriteString(w, out.String())
	return err
}

func (p *Plan) steps() []string {
	return []string{
		fmt.Sprintf("Create machinedeployment/%s, frozen by the label machinist.dev/freeze=%s, so that it creates no machines.",
			p.Deployment.Name, FreezeValue),
		"For each deployment: label its MachineSets, and delete the deployment without its sets (--cascade=orphan). The merged deployment adopts the sets.",
		"Remove the freeze. The merged deployment moves all machines to its own set, without a change of their instances.",
	}
}

// manifest returns the merged deployment as YAML, without the fields that only the API server writes.
func (p *Plan) manifest() (string, error) {
	text, err := yaml.Marshal(p.Deployment)
	if err != nil {
		return "", err
	}
	var fields map[string]any
	if err := yaml.Unmarshal(text, &fields); err != nil {
		return "", err
	}
	delete(fields, "status")
	if metadata, ok := fields["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
	}
	text, err = yaml.Marshal(fields)
	return string(text), err
}
