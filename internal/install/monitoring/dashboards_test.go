package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func dashboards(t *testing.T) []Dashboard {
	t.Helper()
	all, err := LoadDashboards()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 4 {
		t.Fatalf("there are %d dashboards", len(all))
	}
	return all
}

// hardCoded matches a selector of a single cluster, data source, namespace or process.
var hardCoded = regexp.MustCompile(`\b(cluster|datasource|namespace|instance|pod|job)\s*=~?\s*"`)

func TestDashboardsWorkForEveryCluster(t *testing.T) {
	unknown := unknownMetrics(t)
	for _, d := range dashboards(t) {
		titles := map[string]bool{}
		for _, row := range d.Rows {
			if row.Title == "" || len(row.Panels) == 0 || gridWidth%len(row.Panels) != 0 {
				t.Errorf("%s: row %q has %d panels", d.Name, row.Title, len(row.Panels))
			}
			for _, p := range row.Panels {
				if p.Title == "" || titles[p.Title] || p.Unit == "" || len(p.Queries) == 0 {
					t.Errorf("%s: panel %q needs a title of its own, a unit and a query", d.Name, p.Title)
				}
				titles[p.Title] = true
				for _, q := range p.Queries {
					if !strings.Contains(q.Expr, "{$cluster") || hardCoded.MatchString(q.Expr) {
						t.Errorf("%s: panel %q must select the cluster by its variable, and nothing else by a fixed value: %s", d.Name, p.Title, q.Expr)
					}
					if names := unknown(q.Expr); len(names) > 0 {
						t.Errorf("%s: panel %q queries %s, which no process exports", d.Name, p.Title, strings.Join(names, ", "))
					}
				}
			}
		}
	}
}

// The test checks the generated files, which Grafana imports.
func TestGeneratedDashboardsCanBeImported(t *testing.T) {
	files, err := filepath.Glob("../../../config/monitoring/dashboards/*.json")
	if err != nil || len(files) != len(dashboards(t)) {
		t.Fatalf("there are the files %v: %v", files, err)
	}
	uids := map[string]bool{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			UID, Title string
			Templating struct{ List []struct{ Name, Type string } }
			Panels     []struct {
				ID         int
				Type       string
				GridPos    struct{ X, Y, W, H int }
				Datasource struct{ UID string }
				Targets    []struct {
					RefID, Expr string
					Datasource  struct{ UID string }
				}
			}
		}
		if err := json.Unmarshal(content, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if d.UID == "" || d.Title == "" || uids[d.UID] || len(d.UID) > 40 {
			t.Errorf("%s: the uid %q or title %q is missing or not unique", file, d.UID, d.Title)
		}
		uids[d.UID] = true
		var variables []string
		for _, v := range d.Templating.List {
			variables = append(variables, v.Name)
		}
		if !slices.Contains(variables, "datasource") || !slices.Contains(variables, "cluster") {
			t.Errorf("%s: the variables are %v", file, variables)
		}
		ids, taken := map[int]bool{}, map[string]bool{}
		for _, p := range d.Panels {
			position := fmt.Sprint(p.GridPos.X, " ", p.GridPos.Y)
			if p.ID == 0 || ids[p.ID] || taken[position] || p.GridPos.X+p.GridPos.W > gridWidth {
				t.Errorf("%s: panel %d has no unique id or position: %+v", file, p.ID, p.GridPos)
			}
			ids[p.ID], taken[position] = true, true
			if p.Type == "row" {
				continue
			}
			refs := map[string]bool{}
			for _, target := range p.Targets {
				if target.RefID == "" || refs[target.RefID] || target.Datasource.UID != "${datasource}" ||
					p.Datasource.UID != "${datasource}" {
					t.Errorf("%s: panel %d: a query has no unique reference, or another data source", file, p.ID)
				}
				refs[target.RefID] = true
				for _, used := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
					if used[1] != "__rate_interval" && !slices.Contains(variables, used[1]) {
						t.Errorf("%s: panel %d uses $%s, which is not a variable", file, p.ID, used[1])
					}
				}
			}
		}
	}
}

func TestDashboardExpressionsAreValid(t *testing.T) {
	type recorded struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []recorded
	for _, d := range dashboards(t) {
		for _, row := range d.Rows {
			for _, p := range row.Panels {
				for _, q := range p.Queries {
					expr := d.Selectors(q.Expr, func(label string) string { return label + `=~".*"` })
					rules = append(rules, recorded{fmt.Sprintf("panel_%d", len(rules)),
						strings.ReplaceAll(expr, "$__rate_interval", "2m")})
				}
			}
		}
	}
	content, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}
