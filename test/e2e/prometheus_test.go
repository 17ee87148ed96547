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

// shortened are the durations of rules in these tests. A range has to hold several scrapes, and a threshold has to be
// longer than what a healthy machine takes.
var shortened = monitoring.Short{For: 3 * time.Second, Range: 20 * time.Second, Threshold: 15 * time.Second}

// prometheus is a real one, which scrapes the processes every second as the chart's ServiceMonitor has it: by HTTPS,
// with the token of a ServiceAccount that may read metrics.
type prometheus struct {
	*machinist
	url string
	// began is since when it has seen all processes.
	began time.Time
}

// prometheusTool returns the path of a program of Prometheus.
func prometheusTool(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("../../hack/prometheus.sh", name).Output()
	if err != nil {
		t.Fatalf("find %s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}

// watch starts a Prometheus that evaluates the rules, shortened. addresses are those of the metrics by the names of
// processes; the API server of the control cluster is scraped as well, because it alone knows of webhooks that do not
// answer.
func (m *machinist) watch(addresses map[string]string) *prometheus {
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

// series is one of an answer of Prometheus.
type series struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
	Values [][2]any          `json:"values"`
}

// ask sends a request to the API of Prometheus and decodes the data of its answer.
func (p *prometheus) ask(path string, values url.Values, data any) error {
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

// query returns what an expression is now.
func (p *prometheus) query(expr string) []series {
	p.t.Helper()
	var found struct{ Result []series }
	if err := p.ask("/api/v1/query", url.Values{"query": {expr}}, &found); err != nil {
		p.t.Fatalf("query %s: %v", expr, err)
	}
	return found.Result
}

// since returns what an expression has been since Prometheus has seen all processes.
func (p *prometheus) since(expr string) ([]series, error) {
	var found struct{ Result []series }
	end := time.Now()
	if end.Before(p.began) {
		end = p.began
	}
	at := func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
	err := p.ask("/api/v1/query_range", url.Values{"query": {expr}, "start": {at(p.began)}, "end": {at(end)},
		"step": {"2"}}, &found)
	return found.Result, err
}

// fired returns the alerts that have fired since Prometheus has seen all processes.
func (p *prometheus) fired() []string {
	p.t.Helper()
	found, err := p.since(`max by (alertname) (ALERTS{alertstate="firing"})`)
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

// firing waits until all these alerts have fired.
func (p *prometheus) firing(alerts ...string) {
	p.t.Helper()
	began := time.Now()
	eventually(p.t, "these alerts fire: "+strings.Join(alerts, ", "), func() (bool, string) {
		fired := p.fired()
		missing := slices.DeleteFunc(slices.Clone(alerts), func(a string) bool { return slices.Contains(fired, a) })
		return len(missing) == 0, "not yet: " + strings.Join(missing, ", ")
	})
	p.t.Logf("after %s these fire: %s", time.Since(began).Round(time.Second), strings.Join(alerts, ", "))
}

// seen returns when Prometheus scrapes all these processes, has them lead, and no alert of the time before fires.
func (p *prometheus) seen(leaders int) {
	p.t.Helper()
	eventually(p.t, "Prometheus sees all leaders, and no alert fires", func() (bool, string) {
		leading := p.query(fmt.Sprintf(`sum(machinist_leader) == %d`, leaders))
		alerts := p.query(`ALERTS{alertstate="firing"}`)
		return len(leading) == 1 && len(alerts) == 0, fmt.Sprint(leading, alerts)
	})
	p.began = time.Now().Add(time.Second) // Ranges begin at whole seconds.
}

// scraped reports whether each scrape of our processes has succeeded. On a busy machine one may take too long, and then
// the alerts about what is missing are right.
func (p *prometheus) scraped() bool {
	p.t.Helper()
	failed, err := p.since(`min_over_time(up{job=~"machinist-.*"}[3s]) == 0`)
	if err != nil {
		p.t.Fatal(err)
	}
	return len(failed) == 0
}

// evaluated fails the test if Prometheus could not evaluate a rule, or write what an alert that fires says.
func (p *prometheus) evaluated() {
	p.t.Helper()
	var found struct {
		Groups []struct {
			Rules []struct {
				Name, Health, LastError string
				Alerts                  []struct{ Annotations map[string]string }
			}
		}
	}
	if err := p.ask("/api/v1/rules", nil, &found); err != nil {
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

// shows fails the test unless each expression of those panels of the dashboards has had data. All are evaluated.
func (p *prometheus) shows(which func(panel string) bool) {
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
					switch found, err := p.since(expr); {
					case err != nil:
						p.t.Errorf("%s: %v", name, err)
					case !which(name):
					case !slices.ContainsFunc(found, func(s series) bool { return s.number() }):
						p.t.Errorf("%s never shows anything: %s", name, expr)
					}
				}
			}
		}
	}
}

// number reports whether the series has a value that is a number.
func (s series) number() bool {
	return slices.ContainsFunc(s.Values, func(v [2]any) bool { return cmp.Or(fmt.Sprint(v[1]), "NaN") != "NaN" })
}

// lint holds what a process exports to the conventions of Prometheus.
func (p *prometheus) lint(name, address, token string) {
	p.t.Helper()
	code, body := get(p.t, "https://"+address+"/metrics", token)
	if code != http.StatusOK {
		p.t.Errorf("the metrics of %s: answered with %d", name, code)
		return
	}
	check := exec.CommandContext(context.Background(), prometheusTool(p.t, "promtool"), "check", "metrics")
	check.Stdin = strings.NewReader(body)
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		p.t.Errorf("promtool check metrics finds in those of %s (%v):\n%s", name, err, out)
	}
}
