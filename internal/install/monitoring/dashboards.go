package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"sigs.k8s.io/yaml"
)

// Dashboard is the source of a dashboard.
type Dashboard struct {
	// Name is the source file without its extension. The uid of the dashboard is machinist-<name>.
	Name  string `json:"-"`
	Title string `json:"title"`
	// Variables are labels by which users can filter the dashboard. Every dashboard also has variables for the data
	// source and the cluster.
	Variables []Variable `json:"variables,omitempty"`
	Rows      []Row      `json:"rows"`
}

// Variable is a label by which users can filter a dashboard. In the expressions of a panel, write only $namespace to
// filter by a label such as namespace. The program expands $namespace to namespace=~"$namespace".
type Variable struct {
	Name string `json:"name"`
	// Metric is the name of a metric that has the label. The possible values are read from this metric.
	Metric string `json:"metric"`
}

// Row is a row of panels with equal widths.
type Row struct {
	Title  string  `json:"title"`
	Panels []Panel `json:"panels"`
}

// Panel shows the results of queries.
type Panel struct {
	Title       string `json:"title"`
	Description string `json:"description,omitempty"`
	// Type is timeseries, stat or table. The default is timeseries.
	Type string `json:"type,omitempty"`
	// Unit is the unit's name in Grafana.
	Unit string `json:"unit"`
	// Stack stacks the series.
	Stack bool `json:"stack,omitempty"`
	// BadThreshold is the threshold at which a stat panel becomes red.
	BadThreshold *float64 `json:"bad,omitempty"`
	Queries      []Query  `json:"queries"`
}

// Query is a Prometheus expression and the legend for its series.
type Query struct {
	Expr   string `json:"expr"`
	Legend string `json:"legend,omitempty"`
}

const (
	gridWidth   = 24
	panelHeight = 8
)

// LoadDashboards returns the dashboards in the format of the source files.
func LoadDashboards() ([]Dashboard, error) {
	files, err := fs.Glob(sources, "dashboards/*.yaml")
	if err != nil {
		return nil, err
	}
	var all []Dashboard
	for _, file := range files {
		content, err := sources.ReadFile(file)
		if err != nil {
			return nil, err
		}
		d := Dashboard{Name: strings.TrimSuffix(path.Base(file), ".yaml")}
		if err := yaml.UnmarshalStrict(content, &d); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// Selectors replaces $cluster and variables such as $name in an expression. The function choose returns the replacement
// for a label.
func (d Dashboard) Selectors(expr string, choose func(label string) string) string {
	for _, label := range append([]string{"cluster"}, d.labels()...) {
		expr = strings.ReplaceAll(expr, "$"+label, choose(label))
	}
	return expr
}

func (d Dashboard) labels() (labels []string) {
	for _, v := range d.Variables {
		labels = append(labels, v.Name)
	}
	return labels
}

type object = map[string]any

// JSON returns the dashboard in the format that Grafana imports.
func (d Dashboard) JSON() ([]byte, error) {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	var panels []object
	y := 0
	for _, row := range d.Rows {
		panels = append(panels, object{"id": len(panels) + 1, "type": "row", "title": row.Title, "collapsed": false,
			"panels": []any{}, "gridPos": object{"x": 0, "y": y, "w": gridWidth, "h": 1}})
		y++
		width := gridWidth / max(len(row.Panels), 1)
		for i, p := range row.Panels {
			panel := d.panel(p, source)
			panel["id"] = len(panels) + 1
			panel["gridPos"] = object{"x": i * width, "y": y, "w": width, "h": panelHeight}
			panels = append(panels, panel)
		}
		y += panelHeight
	}
	variables := []object{{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
		variable("cluster", "machinist_leader", source)}
	for _, v := range d.Variables {
		variables = append(variables, variable(v.Name, v.Metric, source))
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(object{
		"uid": "machinist-" + d.Name, "title": d.Title, "tags": []string{"machinist"}, "schemaVersion": 39,
		"editable": true, "refresh": "30s", "time": object{"from": "now-6h", "to": "now"}, "timezone": "browser",
		"links": []object{{"type": "dashboards", "tags": []string{"machinist"}, "title": "Machinist", "asDropdown": true,
			"includeVars": true, "keepTime": true}},
		"templating": object{"list": variables}, "annotations": object{"list": []any{}}, "panels": panels,
	})
	return out.Bytes(), err
}

// variable returns a Grafana variable with which users select values of a label. The value .* also matches metrics
// without the label.
func variable(label, metric string, source object) object {
	query := fmt.Sprintf("label_values(%s, %s)", metric, label)
	return object{"name": label, "label": label, "type": "query", "datasource": source, "definition": query,
		"query":   object{"query": query, "refId": "values"},
		"refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
		"current": object{"text": "All", "value": "$__all"}}
}

func (d Dashboard) panel(p Panel, source object) object {
	kind := p.Type
	if kind == "" {
		kind = "timeseries"
	}
	var targets []object
	for i, q := range p.Queries {
		targets = append(targets, object{"refId": string(rune('A' + i)), "datasource": source,
			"expr":         d.Selectors(q.Expr, func(label string) string { return fmt.Sprintf(`%s=~"$%[1]s"`, label) }),
			"legendFormat": q.Legend, "instant": kind != "timeseries", "range": kind == "timeseries",
			"format": map[bool]string{true: "table", false: "time_series"}[kind == "table"]})
	}
	defaults := object{"unit": p.Unit, "min": 0}
	options := object{}
	switch kind {
	case "timeseries":
		stacking, fill := "none", 0
		if p.Stack {
			stacking, fill = "normal", 30
		}
		defaults["custom"] = object{"drawStyle": "line", "fillOpacity": fill, "showPoints": "never",
			"stacking": object{"mode": stacking}}
		options = object{"legend": object{"displayMode": "list", "placement": "bottom"},
			"tooltip": object{"mode": "multi", "sort": "desc"}}
	case "stat":
		options = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "value"}
	}
	if p.BadThreshold != nil {
		defaults["thresholds"] = object{"mode": "absolute", "steps": []object{{"color": "green", "value": nil},
			{"color": "red", "value": *p.BadThreshold}}}
	}
	return object{"type": kind, "title": p.Title, "description": p.Description, "datasource": source, "targets": targets,
		"fieldConfig": object{"defaults": defaults, "overrides": []any{}}, "options": options}
}
