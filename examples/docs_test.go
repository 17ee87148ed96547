package examples_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsyaml "sigs.k8s.io/yaml"

	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud/catalog"
	"machinist.dev/machinist/simcloud/driver"
	"machinist.dev/machinist/test/env"
)

// The API server must accept every manifest in the documentation with strict validation, and the simulated cloud must
// accept its providerSpec. A YAML block without apiVersion and kind shows only a part of an object, so the test only
// parses it.
//
// Rule: bad-input-names-field.
func TestAPIServerAcceptsEveryManifestInDocs(t *testing.T) {
	c, namespace := env.Client(t), env.Namespace(t)
	sim, err := driver.New(driver.Options{Endpoints: []string{"http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, b := range blocks(t) {
		object, complete, err := b.object()
		switch {
		case err != nil:
			t.Errorf("%s: %v", b.at, err)
			continue
		case !complete, strings.HasSuffix(object.GroupVersionKind().Group, ".medik8s.io"):
			continue // The API server of the test does not have the kinds of other operators.
		}
		count++
		object.SetNamespace(namespace)
		if err := c.Create(t.Context(), object, client.DryRunAll,
			client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			t.Errorf("%s: %v", b.at, err)
		}
		name, _, _ := unstructured.NestedString(object.Object, "spec", "provider")
		if spec, found, _ := unstructured.NestedMap(object.Object, "spec", "providerSpec"); found && name == driver.Name {
			text, err := sigsyaml.Marshal(spec)
			if err == nil {
				text, err = sigsyaml.YAMLToJSON(text)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := sim.Validate(t.Context(), provider.ValidateRequest{Class: provider.Class{Spec: text}}); err != nil {
				t.Errorf("%s: %v", b.at, err)
			}
		}
	}
	if count < 5 {
		t.Errorf("found only %d manifests in the documentation, want at least 5", count)
	}
}

// Manifests for the simulated cloud may use only regions, instance types and images of its catalog, and only the
// Secrets of the example.
func TestDocsUseOnlyWhatTheDemoHas(t *testing.T) {
	offers := catalog.Default()
	names := map[string][]string{}
	for _, r := range offers.Regions {
		names["region"] = append(names["region"], r.Name)
	}
	for _, kind := range offers.InstanceTypes {
		names["instanceType"] = append(names["instanceType"], kind.Name)
	}
	for _, image := range offers.Images {
		names["image"] = append(names["image"], image.Name)
	}
	secrets := []string{examples.Sim.Credentials(), examples.Sim.UserData()}
	count := 0
	for _, b := range blocks(t) {
		object, complete, err := b.object()
		if err != nil || !complete {
			continue // TestAPIServerAcceptsEveryManifestInDocs reports the error.
		}
		spec, found, _ := unstructured.NestedMap(object.Object, "spec")
		if name, _, _ := unstructured.NestedString(spec, "provider"); !found || name != driver.Name {
			continue
		}
		count++
		for field, known := range names {
			if value, _, _ := unstructured.NestedString(spec, "providerSpec", field); !slices.Contains(known, value) {
				t.Errorf("%s: %s %q is not one of %q", b.at, field, value, known)
			}
		}
		for _, ref := range []string{"credentialsRef", "userDataRef"} {
			if name, found, _ := unstructured.NestedString(spec, ref, "name"); found && !slices.Contains(secrets, name) {
				t.Errorf("%s: %s %q is not one of %q", b.at, ref, name, secrets)
			}
		}
	}
	if count == 0 {
		t.Error("the documentation has no manifest for the simulated cloud")
	}
}

// Other tests check only examples/health/workers.yaml, so the documentation must quote exactly this file.
func TestHealthPageQuotesExample(t *testing.T) {
	example, err := os.ReadFile("health/workers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(pages(t)["docs/health-and-safety.md"], "\n```yaml\n"+string(example)+"```\n") {
		t.Error("docs/health-and-safety.md does not quote the current examples/health/workers.yaml")
	}
}

// The other tests find manifests only in fenced YAML blocks, and in here documents that are passed to kubectl.
func TestEveryManifestInDocsIsChecked(t *testing.T) {
	inside := map[string]int{}
	for _, b := range blocks(t) {
		inside[b.file] += len(apiVersion.FindAllString(b.text, -1))
	}
	for path, text := range pages(t) {
		if all := len(apiVersion.FindAllString(text, -1)); all != inside[path] {
			t.Errorf("%s: %d of %d lines that begin with apiVersion are in a block marked as YAML or in a here document for "+
				"kubectl", path, inside[path], all)
		}
	}
}

var apiVersion = regexp.MustCompile(`(?m)^ *apiVersion: `)

type block struct{ file, at, text string }

// object returns the decoded block, and whether the block is a complete object. A block without apiVersion and kind
// shows only a part of an object.
func (b block) object() (object *unstructured.Unstructured, complete bool, err error) {
	object = &unstructured.Unstructured{}
	if err := sigsyaml.UnmarshalStrict([]byte(b.text), &object.Object); err != nil {
		return nil, false, err
	}
	version, kind := object.GetAPIVersion(), object.GetKind()
	if (version == "") != (kind == "") {
		return nil, false, fmt.Errorf("apiVersion is %q and kind is %q: set both for an object, and neither for a part of one",
			version, kind)
	}
	return object, kind != "", nil
}

func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(".."), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") || path == "bin" {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".md") {
			return nil
		}
		text, err := os.ReadFile(filepath.Join("..", path))
		all[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if all["README.md"] == "" || all["docs/keeping-machines.md"] == "" {
		t.Fatal("the documentation is not where this test looks")
	}
	return all
}

var (
	fence = regexp.MustCompile("^( *)```(.*)$")
	// heredoc matches a line of a shell block that passes a here document to kubectl.
	heredoc = regexp.MustCompile(`kubectl .*-f - <<'?([A-Z]+)'?$`)
)

// blocks returns all YAML documents in YAML blocks, and those that shell blocks pass to kubectl, without their
// indentation.
func blocks(t *testing.T) []block {
	t.Helper()
	var all []block
	for path, page := range pages(t) {
		indent, end, opened, inside := "", "", 0, false
		var text []string
		for n, line := range strings.Split(page, "\n") {
			m := fence.FindStringSubmatch(line)
			line = strings.TrimPrefix(line, indent)
			switch {
			case m != nil && !inside:
				inside, indent, opened = true, m[1], n+1
				if language := strings.TrimSpace(m[2]); language == "yaml" || language == "yml" {
					end = "```"
				}
			case inside && end != "" && line == end:
				all = append(all, documentsOf(t, path, fmt.Sprintf("%s:%d", path, opened), strings.Join(text, "\n")+"\n")...)
				end, text = "", nil
			case end != "":
				text = append(text, line)
			case inside && heredoc.MatchString(line):
				end, opened = heredoc.FindStringSubmatch(line)[1], n+1
			}
			if m != nil && opened != n+1 {
				inside, indent = false, ""
			}
		}
		if inside || end != "" {
			t.Errorf("%s:%d: the block is not closed", path, opened)
		}
	}
	slices.SortFunc(all, func(a, b block) int { return strings.Compare(a.at, b.at) })
	return all
}

func documentsOf(t *testing.T, file, at, text string) []block {
	t.Helper()
	var all []block
	for reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader([]byte(text)))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		all = append(all, block{file, at, string(document)})
	}
}
