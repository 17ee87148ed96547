package monitoring

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

func alerts(t *testing.T) []Rule {
	t.Helper()
	rules, err := LoadRules()
	if err != nil {
		t.Fatal(err)
	}
	return rules.Published().Alerts()
}

func TestDurationsInComparisonsBecomeSeconds(t *testing.T) {
	rules := Rules{Groups: []Group{{Name: "g", Rules: []Rule{{Alert: "A", For: "15m", Annotations: map[string]string{},
		Expr: `time() - x{a="b"} > 90m and rate(y[10m]) > 0.1 and z[1h] > 2d`}}}}}
	published := rules.Published().Alerts()[0]
	if want := `time() - x{a="b"} > 5400 and rate(y[10m]) > 0.1 and z[1h] > 172800`; published.Expr != want {
		t.Errorf("got %s", published.Expr)
	}
	if published.For != "15m" || published.Annotations["runbook_url"] != RunbookURL+"A.md" {
		t.Errorf("got %+v", published)
	}
	short := rules.Shortened(Short{For: time.Second, Range: time.Minute, Threshold: time.Hour}).Alerts()[0]
	if want := `time() - x{a="b"} > 3600 and rate(y[1m]) > 0.1 and z[1m] > 3600`; short.Expr != want || short.For != "1s" {
		t.Errorf("got %s for %s", short.Expr, short.For)
	}
	if original := rules.Groups[0].Rules[0]; original.For != "15m" || len(original.Annotations) > 0 {
		t.Errorf("the source was changed: %+v", original)
	}
}

func TestEveryAlertHasSeverityAndTexts(t *testing.T) {
	seen := map[string]bool{}
	for _, rule := range alerts(t) {
		if !strings.HasPrefix(rule.Alert, "Machinist") || seen[rule.Alert] {
			t.Errorf("%s: the name must begin with Machinist and be unique", rule.Alert)
		}
		seen[rule.Alert] = true
		if severity := rule.Labels["severity"]; severity != "warning" && severity != "critical" {
			t.Errorf("%s: the severity is %q", rule.Alert, severity)
		}
		for _, text := range []string{"summary", "description"} {
			if !strings.HasSuffix(rule.Annotations[text], ".") {
				t.Errorf("%s: the %s is not a sentence: %q", rule.Alert, text, rule.Annotations[text])
			}
		}
	}
}

var sections = []string{"## What it means", "## Causes", "## What to check", "## What to do"}

func TestEveryAlertHasARunbook(t *testing.T) {
	pages, err := filepath.Glob("../../../docs/runbooks/Machinist*.md")
	if err != nil {
		t.Fatal(err)
	}
	all := alerts(t)
	for _, rule := range all {
		page := filepath.Join("../../../docs/runbooks", rule.Alert+".md")
		content, err := os.ReadFile(page)
		if err != nil {
			t.Errorf("%s has no runbook: %v", rule.Alert, err)
			continue
		}
		at := strings.Index(string(content), "# "+rule.Alert+"\n")
		for _, section := range sections {
			next := strings.Index(string(content), "\n"+section+"\n")
			if next <= at {
				t.Errorf("%s does not have the section %q at its place", page, section)
			}
			at = next
		}
	}
	for _, page := range pages {
		if name := strings.TrimSuffix(filepath.Base(page), ".md"); !slices.ContainsFunc(all, func(r Rule) bool {
			return r.Alert == name
		}) {
			t.Errorf("%s has no alert", page)
		}
	}
}

var metric = regexp.MustCompile(`\bmachinist_[a-z_]+\b`)

func unknownMetrics(t *testing.T) func(expr string) []string {
	t.Helper()
	reference, err := os.ReadFile("../../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	return func(expr string) (unknown []string) {
		for _, name := range metric.FindAllString(expr, -1) {
			base := name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, suffix)
			}
			if !strings.Contains(string(reference), "| `"+base+"` |") {
				unknown = append(unknown, name)
			}
		}
		return unknown
	}
}

func TestMetricsOfAlertsExist(t *testing.T) {
	unknown := unknownMetrics(t)
	for _, rule := range alerts(t) {
		if names := unknown(rule.Expr); len(names) > 0 {
			t.Errorf("%s queries %s, which no process exports", rule.Alert, strings.Join(names, ", "))
		}
	}
}

// The end-to-end tests wait for alerts by name.
func TestEveryAlertIsInAnEndToEndTest(t *testing.T) {
	files, err := filepath.Glob("../../../test/e2e/alerts*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var journeys strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		journeys.Write(content)
	}
	for _, rule := range alerts(t) {
		if !strings.Contains(journeys.String(), `"`+rule.Alert+`"`) {
			t.Errorf("no end-to-end test makes %s fire", rule.Alert)
		}
	}
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.Command("../../../hack/prometheus.sh", "promtool").Output()
	if err != nil {
		t.Fatalf("find promtool: %v", err)
	}
	if out, err := exec.Command(strings.TrimSpace(string(path)), args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Rule: alerts-fire-for-their-cause.
func TestRuleUnitTests(t *testing.T) {
	files, err := filepath.Glob("testdata/*.test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", "../../../config/monitoring/rules.yaml")
	promtool(t, append([]string{"test", "rules"}, files...)...)

	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var tests struct {
			Tests []struct {
				Expressions []struct {
					Expr    string `json:"expr"`
					Samples []any  `json:"exp_samples"`
				} `json:"promql_expr_test"`
				Alerts []struct {
					Name   string `json:"alertname"`
					Alerts []any  `json:"exp_alerts"`
				} `json:"alert_rule_test"`
			} `json:"tests"`
		}
		if err := yaml.Unmarshal(content, &tests); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, test := range tests.Tests {
			for _, e := range test.Expressions {
				if found := firing.FindStringSubmatch(e.Expr); found != nil && len(e.Samples) > 0 {
					fires[found[1]] = true
				}
			}
			for _, a := range test.Alerts {
				quiet[a.Name] = quiet[a.Name] || len(a.Alerts) == 0
			}
		}
	}
	for _, rule := range alerts(t) {
		if !fires[rule.Alert] || !quiet[rule.Alert] {
			t.Errorf("%s lacks a test in which it fires (%t), or one in which it does not (%t)", rule.Alert,
				fires[rule.Alert], quiet[rule.Alert])
		}
	}
}

var firing = regexp.MustCompile(`^ALERTS\{alertname="(\w+)", alertstate="firing"\}$`)
