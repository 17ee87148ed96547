package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func TestParseHelpReadsFlags(t *testing.T) {
	options, err := parseHelp(`Serve something.

Usage:
  program [flags]

Flags:
      --address string     Where to serve. (default "127.0.0.1:0")
  -h, --help               help for program
      --period duration    time between two checks
      --quiet              say nothing
      --zones strings      Zones (all by default) (default [a,b])
  -v, --version            version for program
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []option{
		{"address", "string", `"127.0.0.1:0"`, "Where to serve."},
		{"period", "duration", "0s", "time between two checks"},
		{"quiet", "bool", "false", "say nothing"},
		{"zones", "strings", "[a,b]", "Zones (all by default)"},
	}
	if !slices.Equal(options, want) {
		t.Errorf("got %+v, want %+v", options, want)
	}
	if _, err := parseHelp("\nFlags:\n      --address string   Where\n   to serve\n"); err == nil {
		t.Error("got no error for a usage of two lines, whose second line would be lost")
	}
}

func TestGroupListsSharedFlagsOnce(t *testing.T) {
	log, qps := option{name: "log-level", defaultValue: "info"}, option{name: "qps"}
	sections := group([]section{
		{"manager", anyProcess, []option{log, {name: "sets"}}},
		{"provider-a", provider, []option{log, qps}},
		{"provider-b", provider, []option{log, qps, {name: "b"}}},
		{"cloud", standalone, []option{{name: "log-level", defaultValue: "debug"}}},
	})
	var got []string
	for _, s := range sections {
		line := s.title + ":"
		for _, o := range s.options {
			line += " " + o.name
		}
		got = append(got, line)
	}
	want := []string{"Every process: log-level", "manager: sets", "Every provider process: qps", "provider-a:",
		"provider-b: b", "cloud: log-level"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestConditionsDocumentContainsReasons(t *testing.T) {
	document, err := conditionsDocument(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"\n## Machine\n\n### Phases\n\n",
		"| `Running` | The phase of a machine whose Node is Ready and has no startup taints. |",
		"| `Launched` | True when the instance exists and the providerID of the instance is recorded. |",
		"\n### Reasons of Launched\n\n",
		"| Reason | Surfaces | What happens next | What you can do |\n",
		"| `InstanceLaunched` | When the instance exists. |",
		"| `CertificateNotApproved` |",
	} {
		if !strings.Contains(string(document), line) {
			t.Errorf("the document lacks %q", line)
		}
	}
}

// The command `make verify` must fail if a condition, a reason or an event is not documented.
func TestUndocumentedReasonIsError(t *testing.T) {
	for name, code := range map[string]string{
		"no comment of the group":    "const (\n\t// ReasonA surfaces when a.\n\tReasonA = \"A\"\n)",
		"no group":                   "// Alone surfaces when a.\nconst Alone = \"A\"",
		"no comment of the constant": "// Conditions of a Machine.\nconst (\n\tConditionA = \"A\"\n)",
		"no kind":                    "// Reasons of A.\nconst (\n\t// ReasonA surfaces when a.\n\tReasonA = \"A\"\n)",
		"an event with a literal":    "func f() { r.Eventf(nil, nil, \"Normal\", \"Scaled\", \"Scale\", \"\") }",
	} {
		folder := t.TempDir()
		api := filepath.Join(folder, apiFolder)
		if err := os.MkdirAll(api, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(api, "a.go"), []byte("package v1beta1\n\n"+code+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := blocksOf(folder); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestKeysDocumentHasRowsForAllKeys(t *testing.T) {
	document, err := keysDocument(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"\n## Finalizers\n\n| Key | On | Set by | Value | Meaning |\n",
		"| `machinist.dev/delete-priority` | Machine | users | an integer | Orders the Machines of a MachineSet. ",
		"| `machinist.dev/secret-use` | Secret, ConfigMap | users | `credentials`, `user-data` or `credentials-and-user-data` | ",
		"| `machinist.dev/machine` | Node (a label and an annotation) | the provider |  | A label and an annotation with the name of the Node's Machine. ",
		"| `capacity.cluster-autoscaler.kubernetes.io/cpu`<br>`capacity.cluster-autoscaler.kubernetes.io/memory`<br>",
		"| `machinist.dev/migration-use` | Secret, ConfigMap | users | `allowed` | ",
	} {
		if !strings.Contains(string(document), line) {
			t.Errorf("the document lacks %q", line)
		}
	}
}

func TestKeyWithoutFactsIsError(t *testing.T) {
	for name, code := range map[string]string{
		"no paragraph": "const (\n\t// LabelA is a label.\n\tLabelA = \"a.b/c\"\n)",
		"no group":     "// LabelA is a label.\n//\n// On: Node. Set by: users.\nconst LabelA = \"a.b/c\"",
	} {
		folder := t.TempDir()
		if err := os.MkdirAll(filepath.Join(folder, apiFolder), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range keyFiles {
			text := []byte("package v1beta1\n\n" + code + "\n")
			if err := os.WriteFile(filepath.Join(folder, apiFolder, file), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := keysDocument(folder); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestTimeoutsDocumentMergesEqualFlags(t *testing.T) {
	fields := "\n## Machine\n\n| `spec.timeouts.drain` | duration | drain is how long it takes. Defaults to 2h. |\n" +
		"| `spec.replicas` | integer | replicas is a number. |\n| `status.age` | duration | age is an age. |\n"
	period := option{"period", "duration", "1m0s", "time between two checks"}
	every := section{title: "Every process", options: []option{period, {name: "shards"}}}
	document, err := timeoutsDocument(fields, []section{every, {title: "operator", options: []option{period}}})
	if err != nil {
		t.Fatal(err)
	}
	_, tables, _ := strings.Cut(string(document), "\n## ")
	want := "Fields\n\n| Field | Kind | Default | Meaning |\n| --- | --- | --- | --- |\n" +
		"| `spec.timeouts.drain` | Machine | `2h` | How long it takes. |\n" +
		"\n## Flags\n\n| Flag | Program | Default | Meaning |\n| --- | --- | --- | --- |\n" +
		"| `--period` | Every process, operator | `1m0s` | Time between two checks. |\n"
	if tables != want {
		t.Errorf("got\n%s\nwant\n%s", tables, want)
	}
}

func TestCommandsDocumentHasUsageAndFlags(t *testing.T) {
	document, err := commandsDocument()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"\n## machinist rollout undo\n\n",
		"\n```text\nmachinist why TYPE/NAME\n```\n",
		"\n| `--all-namespaces`, `-A` | bool | `false` | ",
	} {
		if !strings.Contains(string(document), text) {
			t.Errorf("the document lacks %q", text)
		}
	}
	if strings.Contains(string(document), "`--kubeconfig` | ") {
		t.Error("the document repeats the flags of kubectl for each command")
	}
}

func TestSpecsDocumentHasNestedFields(t *testing.T) {
	document, err := specsDocument(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"\n## AzureMachine\n\napiVersion `azure.machinist.dev/v1beta1`. ",
		"| `vmSize` | string | The size of the virtual machine, such as \"Standard_D4s_v5\". Required. |\n",
		"| `resize` | string | ",
		"| `networks` | list of object | ",
		"| `ports.allowedAddressPairs.macAddress` | string | ",
		"| `tags` | map of string | ",
	} {
		if !strings.Contains(string(document), line) {
			t.Errorf("the document lacks %q", line)
		}
	}
}

func TestUnregisteredMetricIsError(t *testing.T) {
	metrics, err := registeredMetrics()
	if err != nil {
		t.Fatal(err)
	}
	if err := checkComplete(root, metrics); err != nil {
		t.Error(err)
	}
	if m := metrics["machinist_frozen"]; len(m.processes) != len(processes) || m.kind != "gauge" || m.labels != "reason" ||
		!strings.HasPrefix(m.help, "Number of freezes") || !strings.HasSuffix(m.help, ".") {
		t.Errorf("machinist_frozen is %+v", m)
	}
	delete(metrics, "machinist_frozen")
	if err := checkComplete(root, metrics); err == nil || !strings.Contains(err.Error(), "creates machinist_frozen") {
		t.Errorf("got the error %v, want one about machinist_frozen", err)
	}
}
