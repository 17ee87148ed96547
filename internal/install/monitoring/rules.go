package monitoring

import (
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

//go:embed rules/*.yaml dashboards/*.yaml
var sources embed.FS

// RunbookURL is the folder of the runbooks. The page of an alert is <alert>.md.
const RunbookURL = "https://machinist.dev/docs/runbooks/"

// Rules is the content of a Prometheus rule file.
type Rules struct {
	Groups []Group `json:"groups"`
}

// Group is a group of rules that are evaluated together.
type Group struct {
	Name  string `json:"name"`
	Rules []Rule `json:"rules"`
}

// Rule is an alert.
type Rule struct {
	Alert string `json:"alert"`
	Expr  string `json:"expr"`
	// For is how long the expression must be true before the alert fires, as a Prometheus duration. If the field is
	// empty, the alert fires at once.
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// LoadRules returns the rules in the format of the source files.
func LoadRules() (Rules, error) {
	var all Rules
	files, err := fs.Glob(sources, "rules/*.yaml")
	if err != nil {
		return all, err
	}
	for _, file := range files {
		content, err := sources.ReadFile(file)
		if err != nil {
			return all, err
		}
		var rules Rules
		if err := yaml.UnmarshalStrict(content, &rules); err != nil {
			return all, fmt.Errorf("%s: %w", file, err)
		}
		all.Groups = append(all.Groups, rules.Groups...)
	}
	return all, nil
}

// Alerts returns all rules in the order of the sources.
func (r Rules) Alerts() (all []Rule) {
	for _, g := range r.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// Published returns the rules in the format of Prometheus. Durations in comparisons become seconds, and runbook_url is
// added.
func (r Rules) Published() Rules {
	return r.each(func(rule *Rule) {
		rule.Expr = replaceDurations(rule.Expr, func(_ bool, d time.Duration) time.Duration { return d })
		rule.Annotations["runbook_url"] = RunbookURL + rule.Alert + ".md"
	})
}

// Short contains short durations for tests that evaluate the rules every second.
type Short struct {
	// The duration For replaces the field "for" of each rule. The duration Range replaces each range of a selector. The
	// duration Threshold replaces each duration in a comparison. The three durations must be whole seconds.
	For, Range, Threshold time.Duration
}

// Shortened returns the published rules with short durations.
func (r Rules) Shortened(s Short) Rules {
	return r.each(func(rule *Rule) {
		rule.Expr = replaceDurations(rule.Expr, func(isRange bool, _ time.Duration) time.Duration {
			if isRange {
				return s.Range
			}
			return s.Threshold
		})
		if rule.For != "" {
			rule.For = promDuration(s.For)
		}
	})
}

func (r Rules) each(change func(*Rule)) Rules {
	var out Rules
	for _, g := range r.Groups {
		changed := Group{Name: g.Name}
		for _, rule := range g.Rules {
			annotations := map[string]string{}
			for key, text := range rule.Annotations {
				annotations[key] = text
			}
			rule.Annotations = annotations
			change(&rule)
			changed.Rules = append(changed.Rules, rule)
		}
		out.Groups = append(out.Groups, changed)
	}
	return out
}

// duration matches a number with a unit, such as 5m, in an expression. A duration after a bracket is the range of a
// selector, such as [5m].
var duration = regexp.MustCompile(`(\[)?\b(\d+)(s|m|h|d)\b`)

var units = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

// replaceDurations replaces the durations in an expression. A range is written as a duration again. Any other duration
// is written as a number of seconds.
func replaceDurations(expr string, change func(isRange bool, d time.Duration) time.Duration) string {
	return duration.ReplaceAllStringFunc(expr, func(found string) string {
		parts := duration.FindStringSubmatch(found)
		n, err := strconv.Atoi(parts[2])
		if err != nil {
			return found // The number is too large. promtool refuses it.
		}
		isRange := parts[1] != ""
		d := change(isRange, time.Duration(n)*units[parts[3]])
		if isRange {
			return "[" + promDuration(d)
		}
		return strconv.FormatInt(int64(d/time.Second), 10)
	})
}

// promDuration formats whole seconds as Prometheus does: 90m instead of 1h30m0s.
func promDuration(d time.Duration) string {
	for _, unit := range []string{"d", "h", "m"} {
		if d >= units[unit] && d%units[unit] == 0 {
			return strconv.FormatInt(int64(d/units[unit]), 10) + unit
		}
	}
	return strconv.FormatInt(int64(d/time.Second), 10) + "s"
}

// File returns a plain rule file.
func (r Rules) File() ([]byte, error) { return yaml.Marshal(r) }

// Manifest returns a PrometheusRule for the Prometheus operator.
func (r Rules) Manifest() ([]byte, error) {
	return yaml.Marshal(map[string]any{
		"apiVersion": "monitoring.coreos.com/v1",
		"kind":       "PrometheusRule",
		"metadata": map[string]any{"name": "machinist", "namespace": "machinist-system",
			"labels": map[string]string{"app.kubernetes.io/part-of": "machinist"}},
		"spec": r,
	})
}

// firesAfter returns how long a state must last until the rule fires: the field "for" plus the durations in
// comparisons. The rule must be in the source format.
func (r Rule) firesAfter() string {
	var waits time.Duration
	replaceDurations(r.Expr, func(isRange bool, d time.Duration) time.Duration {
		if !isRange {
			waits += d
		}
		return d
	})
	replaceDurations(r.For, func(_ bool, d time.Duration) time.Duration { waits += d; return d })
	if waits == 0 {
		return "at once"
	}
	return promDuration(waits)
}

// Runbooks returns a table of all alerts with links to their pages. The rules must be in the source format.
func (r Rules) Runbooks() string {
	var out strings.Builder
	for _, g := range r.Groups {
		fmt.Fprintf(&out, "\n## %s\n\n| Alert | Severity | Fires after | Summary |\n| --- | --- | --- | --- |\n",
			strings.TrimPrefix(g.Name, "machinist-"))
		for _, rule := range g.Rules {
			fmt.Fprintf(&out, "| [%s](%[1]s.md) | %s | %s | %s |\n", rule.Alert, rule.Labels["severity"], rule.firesAfter(),
				rule.Annotations["summary"])
		}
	}
	return out.String()
}
