package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

type workflow struct {
	Jobs map[string]struct {
		Permissions map[string]string
		Steps       []struct {
			Uses, Run string
			With      map[string]any
		}
	}
}

// The workflow cannot run here. This test compares its steps, their order and their flags with the rehearsal.
func TestWorkflowRunsTheStepsOfTheRehearsal(t *testing.T) {
	text, err := os.ReadFile("../../.github/workflows/release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var w workflow
	if err := yaml.Unmarshal(text, &w); err != nil {
		t.Fatal(err)
	}
	job, ok := w.Jobs["release"]
	if !ok || len(w.Jobs) != 1 {
		t.Fatalf("got the jobs %v, want release", w.Jobs)
	}
	for _, permission := range []string{"attestations", "contents", "id-token"} {
		if job.Permissions[permission] != "write" {
			t.Errorf("the permission %s is %q, want write", permission, job.Permissions[permission])
		}
	}
	pinned := regexp.MustCompile(`@[0-9a-f]{40}$`)
	var steps, subjects []string
	for _, step := range job.Steps {
		if step.Uses != "" && !pinned.MatchString(step.Uses) {
			t.Errorf("%s is not pinned by a digest", step.Uses)
		}
		if file, ok := step.With["subject-checksums"].(string); ok {
			steps, subjects = append(steps, "attest"), append(subjects, file)
		}
		if args, ok := strings.CutPrefix(step.Run, "$(hack/tool.sh release .) "); ok {
			c, err := parse(strings.Fields(args))
			if err != nil {
				t.Errorf("%s: %v", step.Run, err)
			}
			steps = append(steps, c.step)
		}
	}
	if want := []string{"build", "publish", "attest", "attest", "verify"}; !slices.Equal(steps, want) {
		t.Errorf("got the steps %v, want %v", steps, want)
	}
	if want := []string{"dist/release/files/" + checksumsFile, "dist/release/files/" + digestsFile}; !slices.Equal(subjects, want) {
		t.Errorf("the provenance has the subjects %v, want %v", subjects, want)
	}
}

func TestErrorsNameInvalidInput(t *testing.T) {
	for args, want := range map[string]string{
		"":      "name a step",
		"bake":  `unknown step "bake"`,
		"build": "release build needs --tag",
		"build --tag v1.2.3 --registry registry.example.com":                      "release build needs --repository",
		"build --tag v1.2.3 --registry registry.example.com --repository x extra": `does not accept the argument "extra"`,
		"publish --key cosign.key":                                                "",
		"verify":                                                                  "needs either --identity or --key",
		"verify --key cosign.pub --identity https://x":                            "needs either --identity or --key",
		"verify --identity https://x --folder dist/release":                       "",
		"rehearse --root .":                                                       "",
	} {
		_, err := parse(strings.Fields(args))
		expectError(t, args, err, want)
	}
}
