//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/internal/install/monitoring"
)

// shortened replaces the long durations in the alert rules, so that a test does not wait for minutes. The range must
// include several scrapes, and the threshold must exceed the time of a healthy creation.
var shortened = monitoring.Short{For: 3 * time.Second, Range: 20 * time.Second, Threshold: 15 * time.Second}

// prometheus is a real Prometheus that scrapes the processes every second as the chart's ServiceMonitor does: with
// HTTPS and the token of a ServiceAccount that may read metrics.
type prometheus struct {
	*machinist
	url   string
	began time.Time
}

func prometheusTool(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("../../hack/prometheus.sh", name).Output()
	if err != nil {
		t.Fatalf("find %s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}

// startPrometheus starts a Prometheus with the shortened rules. addresses are the metrics addresses by process name.
// Prometheus also scrapes the control cluster's API server, because only its metrics show webhooks that do not respond.
func (m *machinist) startPrometheus(addresses map[string]string) *prometheus {
	m.t.Helper()
	rules, err := monitoring.LoadRules()
	if err != nil {
		m.t.Fatal(err)
	}
	file, err := rules.Shortened(shortened).File()
	if err != nil {
		m.t.Fatal(err)
	}
	newAccount(m.t, m.control, "scraper", true)
	dir := m.t.TempDir()
	api := m.Control.Config()
	for name, content := range map[string][]byte{"rules.yaml": file, "token": []byte(newToken(m.t, m.control, "scraper")),
		"ca.crt": m.Control.CA(), "api.crt": api.CertData, "api.key": api.KeyData} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
	address := freeAddress(m.t)
	config, err := yaml.Marshal(scrapeConfig(dir, api, addresses))
	if err != nil {
		m.t.Fatal(err)
	}
	configFile := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(configFile, config, 0o600); err != nil {
		m.t.Fatal(err)
	}
	server := &child.Process{Name: "prometheus", Path: prometheusTool(m.t, "prometheus"), Dir: dir, Args: []string{
		"--config.file=" + configFile, "--storage.tsdb.path=" + filepath.Join(dir, "data"),
		"--web.listen-address=" + address, "--log.level=warn"}}
	if err := server.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		if m.t.Failed() {
			m.t.Logf("end of the log of Prometheus:\n%s", server.LogTail())
		}
		if err := server.Stop(15 * time.Second); err != nil {
			m.t.Errorf("stop Prometheus: %v", err)
		}
	})
	p := &prometheus{machinist: m, url: "http://" + address, began: time.Now()}
	eventually(m.t, "Prometheus is ready", func() (bool, string) {
		response, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false, err.Error()
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK, response.Status
	})
	return p
}

func scrapeConfig(dir string, api *rest.Config, addresses map[string]string) map[string]any {
	type object = map[string]any
	server, _ := url.Parse(api.Host)
	jobs := []object{{
		"job_name": "kube-apiserver", "scheme": "https", "scrape_interval": "5s",
		"tls_config": object{"ca_file": filepath.Join(dir, "ca.crt"), "cert_file": filepath.Join(dir, "api.crt"),
			"key_file": filepath.Join(dir, "api.key")},
		"static_configs": []object{{"targets": []string{server.Host}}},
		"metric_relabel_configs": []object{{"source_labels": []string{"__name__"}, "action": "keep",
			"regex": "apiserver_admission_webhook_.*"}},
	}}
	for name, address := range addresses {
		jobs = append(jobs, object{
			"job_name": name, "scheme": "https", "tls_config": object{"insecure_skip_verify": true},
			"authorization": object{"credentials_file": filepath.Join(dir, "token")},
			"static_configs": []object{{"targets": []string{address},
				"labels": object{"namespace": "machinist-system", "pod": name + "-0"}}},
		})
	}
	return object{
		"global":     object{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
		"rule_files": []string{filepath.Join(dir, "rules.yaml")}, "scrape_configs": jobs,
	}
}

type series struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
	Values [][2]any          `json:"values"`
}

func (p *prometheus) callAPI(path string, values url.Values, data any) error {
	response, err := http.Get(p.url + path + "?" + values.Encode())
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer := struct {
		Status, Error string
		Data          json.RawMessage
	}{}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", answer.Status, answer.Error)
	}
	return json.Unmarshal(answer.Data, data)
}

func (p *prometheus) query(expr string) []series {
	p.t.Helper()
	var found struct{ Result []series }
	if err := p.callAPI("/api/v1/query", url.Values{"query": {expr}}, &found); err != nil {
		p.t.Fatalf("query %s: %v", expr, err)
	}
	return found.Result
}

func (p *prometheus) queryRange(expr string) ([]series, error) {
	var found struct{ Result []series }
	end := time.Now()
	if end.Before(p.began) {
		end = p.began
	}
	at := func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
	err := p.callAPI("/api/v1/query_range", url.Values{"query": {expr}, "start": {at(p.began)}, "end": {at(end)},
		"step": {"2"}}, &found)
	return found.Result, err
}

func (p *prometheus) firedAlerts() []string {
	p.t.Helper()
	found, err := p.queryRange(`max by (alertname) (ALERTS{alertstate="firing"})`)
	if err != nil {
		p.t.Fatal(err)
	}
	var names []string
	for _, s := range found {
		names = append(names, s.Metric["alertname"])
	}
	slices.Sort(names)
	return names
}

func (p *prometheus) awaitFiring(alerts ...string) {
	p.t.Helper()
	began := time.Now()
	eventually(p.t, "these alerts have fired: "+strings.Join(alerts, ", "), func() (bool, string) {
		fired := p.firedAlerts()
		missing := slices.DeleteFunc(slices.Clone(alerts), func(a string) bool { return slices.Contains(fired, a) })
		return len(missing) == 0, "not yet: " + strings.Join(missing, ", ")
	})
	p.t.Logf("these alerts have fired after %s: %s", time.Since(began).Round(time.Second), strings.Join(alerts, ", "))
}

func (p *prometheus) awaitLeaders(leaders int) {
	p.t.Helper()
	eventually(p.t, "Prometheus sees all leaders, and no alert fires", func() (bool, string) {
		leading := p.query(fmt.Sprintf(`sum(machinist_leader) == %d`, leaders))
		alerts := p.query(`ALERTS{alertstate="firing"}`)
		return len(leading) == 1 && len(alerts) == 0, fmt.Sprint(leading, alerts)
	})
	p.began = time.Now().Add(time.Second) // Add a second, because ranges begin at whole seconds.
}

// allScraped reports whether every scrape of our processes has succeeded. On a busy computer, a scrape may time out.
// Alerts about missing metrics are then correct.
func (p *prometheus) allScraped() bool {
	p.t.Helper()
	failed, err := p.queryRange(`min_over_time(up{job=~"machinist-.*"}[3s]) == 0`)
	if err != nil {
		p.t.Fatal(err)
	}
	return len(failed) == 0
}

func (p *prometheus) wantRulesEvaluated() {
	p.t.Helper()
	var found struct {
		Groups []struct {
			Rules []struct {
				Name, Health, LastError string
				Alerts                  []struct{ Annotations map[string]string }
			}
		}
	}
	if err := p.callAPI("/api/v1/rules", nil, &found); err != nil {
		p.t.Fatal(err)
	}
	rules := 0
	for _, g := range found.Groups {
		for _, r := range g.Rules {
			rules++
			if r.Health != "ok" {
				p.t.Errorf("rule %s is %s: %s", r.Name, r.Health, r.LastError)
			}
			for _, a := range r.Alerts {
				for name, text := range a.Annotations {
					if strings.Contains(text, "<error") || strings.Contains(text, "<no value>") {
						p.t.Errorf("rule %s has the %s %q", r.Name, name, text)
					}
				}
			}
		}
	}
	if rules == 0 {
		p.t.Error("there are no rules")
	}
}

// wantPanelData requires that each expression in the selected dashboard panels has returned data, and that all other
// expressions are valid.
func (p *prometheus) wantPanelData(selected func(panel string) bool) {
	p.t.Helper()
	dashboards, err := monitoring.LoadDashboards()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, d := range dashboards {
		for _, row := range d.Rows {
			for _, panel := range row.Panels {
				name := d.Name + "/" + panel.Title
				for _, q := range panel.Queries {
					expr := d.Selectors(q.Expr, func(label string) string { return label + `=~".*"` })
					expr = strings.ReplaceAll(expr, "$__rate_interval", "10s")
					switch found, err := p.queryRange(expr); {
					case err != nil:
						p.t.Errorf("%s: %v", name, err)
					case !selected(name):
					case !slices.ContainsFunc(found, func(s series) bool { return s.hasNumber() }):
						p.t.Errorf("%s: the expression never returned data: %s", name, expr)
					}
				}
			}
		}
	}
}

func (s series) hasNumber() bool {
	return slices.ContainsFunc(s.Values, func(v [2]any) bool { return cmp.Or(fmt.Sprint(v[1]), "NaN") != "NaN" })
}

func (p *prometheus) lint(name, address, token string) {
	p.t.Helper()
	code, body := get(p.t, "https://"+address+"/metrics", token)
	if code != http.StatusOK {
		p.t.Errorf("metrics of %s: got status %d, want %d", name, code, http.StatusOK)
		return
	}
	check := exec.CommandContext(context.Background(), prometheusTool(p.t, "promtool"), "check", "metrics")
	check.Stdin = strings.NewReader(body)
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		p.t.Errorf("promtool check metrics of %s: %v:\n%s", name, err, out)
	}
}
