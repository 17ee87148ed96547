package why

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// constants returns the string constants in a folder whose names match the regular expression.
func constants(t *testing.T, folder, names string) map[string]string {
	t.Helper()
	matches := regexp.MustCompile(names)
	found := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.Contains(path, "/internal/cli/") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				for i, name := range v.Names {
					if !matches.MatchString(name.Name) || i >= len(v.Values) {
						continue
					}
					if literal, ok := v.Values[i].(*ast.BasicLit); ok {
						if found[name.Name], err = strconv.Unquote(literal.Value); err != nil {
							return err
						}
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// The API does not define all reasons: some are defined in a controller.
func TestEveryReasonHasAnExplanation(t *testing.T) {
	reasons := constants(t, "../../../api/v1beta1", "^(Reason|Failure)[A-Z]")
	if len(reasons) < 100 {
		t.Fatalf("found only %d reasons in the API: is it somewhere else?", len(reasons))
	}
	// Reasons in internal/class/bootstrap occur only in events and logs.
	internalReasons := map[string]string{}
	for _, tree := range []string{"machine", "class/machineclass", "fleet/machineset", "fleet/machinedeployment",
		"health"} {
		maps.Copy(internalReasons, constants(t, "../../../internal/"+tree, "^Reason[A-Z]"))
	}
	if len(internalReasons) == 0 {
		t.Error("found no reasons in the packages of the controllers: are they somewhere else?")
	}
	all := meanings()
	known := map[string]bool{}
	for _, where := range []map[string]string{reasons, internalReasons} {
		for name, reason := range where {
			known[reason] = true
			if all[reason].Explanation == "" {
				t.Errorf("%s = %q has no explanation", name, reason)
			}
		}
	}
	var conditions []string
	for _, c := range constants(t, "../../../api/v1beta1", "^Condition[A-Z]") {
		conditions = append(conditions, c)
	}
	for key, m := range all {
		condition, reason, special := strings.Cut(key, "/")
		if !special {
			reason = key
		} else if condition != failedCondition && condition != ClassReady && !slices.Contains(conditions, condition) {
			t.Errorf("%s: there is no such condition", key)
		}
		if !known[reason] {
			t.Errorf("%s: there is no such reason", key)
		}
		for _, sentence := range []string{m.Explanation, m.NextStep} {
			if sentence != "" && !strings.HasSuffix(sentence, ".") || strings.TrimSpace(sentence) != sentence {
				t.Errorf("%s: %q is not a sentence", key, sentence)
			}
		}
		if m.Explanation == "" {
			t.Errorf("%s has no explanation", key)
		}
	}
}

func TestMeaningOfUnknownReason(t *testing.T) {
	if got := MeaningOf("Ready", "Fancy").Explanation; got != "The condition Ready reports Fancy." {
		t.Errorf("got %q", got)
	}
}

// No text follows the command, so that it can be pasted into a shell.
func TestAdviceEndsWithItsCommand(t *testing.T) {
	for reason, m := range meanings() {
		i := strings.Index(m.Instructions, "kubectl ")
		if i < 0 {
			continue
		}
		command := m.Instructions[i:]
		if strings.HasSuffix(command, ".") || strings.ContainsAny(command, ",;:") || strings.Contains(command, ". ") ||
			strings.Contains(command[1:], "kubectl ") {
			t.Errorf("%s: in %q, text follows the command", reason, m.Instructions)
		}
	}
}

// In a fleet, only the placeholders for a machine stay, because the user chooses the machine.
func TestAdviceNamesTheExplainedObject(t *testing.T) {
	placeholder := regexp.MustCompile(`\S+[ /](NAME|NODE)\b`)
	known := []string{"machines.machinist.dev NAME", "machine/NAME", "machinedeployments.machinist.dev NAME", "md/NAME",
		"node NODE", "plan NAME"}
	owner := deployment()
	for key, m := range meanings() {
		for _, found := range placeholder.FindAllString(m.Instructions, -1) {
			if !slices.Contains(known, found) {
				t.Errorf("%s: nothing replaces %q", key, found)
			}
		}
		condition, reason, special := strings.Cut(key, "/")
		if !special {
			condition, reason = "Any", key
		}
		c := &metav1.Condition{Type: condition, Reason: reason}
		for about, literals := range map[string][]string{"machineset/web": {"md/NAME"},
			"machinedeployment/web": {"md/NAME", "machinedeployments.machinist.dev NAME"}} {
			do := fleetFinding(about, "prod", c).Instructions
			for _, literal := range literals {
				if strings.Contains(do, literal) {
					t.Errorf("%s of %s: %q", key, about, do)
				}
			}
		}
		e := explanation{Facts: Facts{Machine: machine(), Deployment: owner}, about: "machine/web-1"}
		e.add(e.conditionFinding(c))
		for _, found := range placeholder.FindAllString(e.findings[0].Instructions, -1) {
			if found != "machine/NAME" && found != "plan NAME" {
				t.Errorf("%s of a machine: %q", key, e.findings[0].Instructions)
			}
		}
	}
}

// The advice about a fleet keeps the name of the fleet, even if a machine is explained.
func TestAdviceAboutFleetOfMachine(t *testing.T) {
	const do = "kubectl edit machinedeployments.machinist.dev NAME && kubectl delete machines.machinist.dev NAME"
	e := explanation{Facts: Facts{Machine: machine(), Deployment: deployment()}, about: "machine/web-1"}
	e.add(Finding{Instructions: do})
	const want = "kubectl edit machinedeployments.machinist.dev web -n prod && " +
		"kubectl delete machines.machinist.dev web-1 -n prod"
	if got := e.findings[0].Instructions; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
