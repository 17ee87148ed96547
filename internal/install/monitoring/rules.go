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

// RunbookURL is where the pages of the alerts are, below which each has the name of its alert and ".md".
const RunbookURL = "https://machinist.dev/docs/runbooks/"

// Rules are what a rule file of Prometheus has.
type Rules struct {
	Groups []Group `json:"groups"`
}

// Group is evaluated together.
type Group struct {
	Name  string `json:"name"`
	Rules []Rule `json:"rules"`
}

// Rule is an alert.
type Rule struct {
	Alert string `json:"alert"`
	Expr  string `json:"expr"`
	// For is a duration as Prometheus writes it; "" fires at once.
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// LoadRules returns the rules as their sources have them.
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

// Alerts returns all rules, in the order of the sources.
func (r Rules) Alerts() (all []Rule) {
	for _, g := range r.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// Published returns the rules as users get them: with seconds in the place of durations that are compared with, and
// with the annotation runbook_url.
func (r Rules) Published() Rules {
	return r.each(func(rule *Rule) {
		rule.Expr = inDurations(rule.Expr, func(_ bool, d time.Duration) time.Duration { return d })
		rule.Annotations["runbook_url"] = RunbookURL + rule.Alert + ".md"
	})
}

// Short are the durations of rules for a test that cannot wait: it scrapes and evaluates every second.
type Short struct {
	// For, Range and Threshold take the place of each for, of each range of an expression, and of each duration that is
	// compared with. They have to be whole seconds.
	For, Range, Threshold time.Duration
}

// Shortened returns the published rules with other durations. Nothing else differs.
func (r Rules) Shortened(s Short) Rules {
	return r.each(func(rule *Rule) {
		rule.Expr = inDurations(rule.Expr, func(isRange bool, _ time.Duration) time.Duration {
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

// duration is one in an expression: with a bracket before it, the range of a selector.
var duration = regexp.MustCompile(`(\[)?\b(\d+)(s|m|h|d)\b`)

var units = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

// inDurations replaces the durations of an expression: ranges by durations, others by seconds.
func inDurations(expr string, change func(isRange bool, d time.Duration) time.Duration) string {
	return duration.ReplaceAllStringFunc(expr, func(found string) string {
		parts := duration.FindStringSubmatch(found)
		n, err := strconv.Atoi(parts[2])
		if err != nil {
			return found // More digits than a number has; promtool refuses it.
		}
		isRange := parts[1] != ""
		d := change(isRange, time.Duration(n)*units[parts[3]])
		if isRange {
			return "[" + promDuration(d)
		}
		return strconv.FormatInt(int64(d/time.Second), 10)
	})
}

// promDuration writes a duration of whole seconds as Prometheus does: 90m rather than 1h30m0s.
func promDuration(d time.Duration) string {
	for _, unit := range []string{"d", "h", "m"} {
		if d >= units[unit] && d%units[unit] == 0 {
			return strconv.FormatInt(int64(d/units[unit]), 10) + unit
		}
	}
	return strconv.FormatInt(int64(d/time.Second), 10) + "s"
}

// File is a plain rule file.
func (r Rules) File() ([]byte, error) { return yaml.Marshal(r) }

// Manifest is a PrometheusRule for the Prometheus operator.
func (r Rules) Manifest() ([]byte, error) {
	return yaml.Marshal(map[string]any{
		"apiVersion": "monitoring.coreos.com/v1",
		"kind":       "PrometheusRule",
		"metadata": map[string]any{"name": "machinist", "namespace": "machinist-system",
			"labels": map[string]string{"app.kubernetes.io/part-of": "machinist"}},
		"spec": r,
	})
}

// after is how long a state lasts until the rule, of the sources, fires for it: for, and what the expression waits for.
func (r Rule) after() string {
	var waits time.Duration
	inDurations(r.Expr, func(isRange bool, d time.Duration) time.Duration {
		if !isRange {
			waits += d
		}
		return d
	})
	// for is a single duration too.
	inDurations(r.For, func(_ bool, d time.Duration) time.Duration { waits += d; return d })
	if waits == 0 {
		return "at once"
	}
	return promDuration(waits)
}

// Runbooks is the table of all alerts of the sources with their pages.
func (r Rules) Runbooks() string {
	var out strings.Builder
	for _, g := range r.Groups {
		fmt.Fprintf(&out, "\n## %s\n\n| Alert | Severity | Fires after | Summary |\n| --- | --- | --- | --- |\n",
			strings.TrimPrefix(g.Name, "machinist-"))
		for _, rule := range g.Rules {
			fmt.Fprintf(&out, "| [%s](%[1]s.md) | %s | %s | %s |\n", rule.Alert, rule.Labels["severity"], rule.after(),
				rule.Annotations["summary"])
		}
	}
	return out.String()
}
