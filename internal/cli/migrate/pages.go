package migrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const (
	// findingsKey is the ConfigMap key for the findings of a plan. Each line has the level, code, object, path and
	// message for one object and field.
	findingsKey = "findings.txt"
	// manifestsKey is the ConfigMap key for the YAML documents of the converted classes, deployments and sets.
	manifestsKey = "manifests.yaml"
)

// Pages are the parts of a plan that do not fit into a status.
type Pages struct {
	// Findings has one entry for each line of the key findings.txt, in the migrator's order.
	Findings []Detail
	// Manifests are the converted objects in the migrator's order.
	Manifests []Manifest
}

// Detail describes one object, or one field of an object, that a finding affects.
type Detail struct {
	Level, Code string
	// Text has the object, the path of the field, and the message.
	Text string
}

// ReadPages parses the ConfigMaps of a migration. A long text spans several ConfigMaps, which are numbered at the end
// of their names.
func ReadPages(maps []corev1.ConfigMap) (Pages, error) {
	maps = slices.Clone(maps)
	slices.SortFunc(maps, func(a, b corev1.ConfigMap) int {
		if byNumber := number(a.Name) - number(b.Name); byNumber != 0 {
			return byNumber
		}
		return strings.Compare(a.Name, b.Name)
	})
	var findings, manifests strings.Builder
	for _, page := range maps {
		findings.WriteString(page.Data[findingsKey])
		manifests.WriteString(page.Data[manifestsKey])
	}
	var pages Pages
	for line := range strings.Lines(findings.String()) {
		if fields := strings.SplitN(strings.TrimSpace(line), " ", 3); len(fields) == 3 {
			pages.Findings = append(pages.Findings, Detail{Level: fields[0], Code: fields[1], Text: fields[2]})
		}
	}
	var err error
	if pages.Manifests, err = readManifests(manifests.String()); err != nil {
		return Pages{}, fmt.Errorf("read key %s of the ConfigMaps of the migration: %w", manifestsKey, err)
	}
	return pages, nil
}

func number(name string) int {
	n, err := strconv.Atoi(name[strings.LastIndex(name, "-")+1:])
	if err != nil {
		return 0
	}
	return n
}

func readManifests(text string) ([]Manifest, error) {
	var all []Manifest
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096)
	for {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
			continue
		}
		manifest, err := manifestOf(raw)
		if err != nil {
			return nil, err
		}
		all = append(all, manifest)
	}
}
