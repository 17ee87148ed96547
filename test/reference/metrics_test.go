// Package reference holds the reference documentation to what the code says.
package reference

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"machinist.dev/machinist/internal/cloud"
	"machinist.dev/machinist/internal/healthcheck"
	"machinist.dev/machinist/internal/machine"
	"machinist.dev/machinist/internal/machine/drain"
	"machinist.dev/machinist/internal/machinedeployment"
	"machinist.dev/machinist/internal/operator"
	"machinist.dev/machinist/internal/safety/orphans"
)

const root = "../.."

// metric is a row of the documentation, or what a collector says of itself.
type metric struct{ kind, labels string }

// registry takes down what is registered.
type registry map[string]metric

func (r registry) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		_ = r.Register(c)
	}
}

func (r registry) Unregister(prometheus.Collector) bool { return false }

var description = regexp.MustCompile(`fqName: "([^"]*)".*variableLabels: \{([^}]*)\}`)

func (r registry) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	for desc := range descs {
		found := description.FindStringSubmatch(desc.String())
		r[found[1]] = metric{kindOf(c), found[2]}
	}
	return nil
}

func kindOf(c prometheus.Collector) string {
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	}
	return "gauge"
}

// documented returns the rows of the table.
func documented(t *testing.T) map[string]metric {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/reference/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]metric{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || !strings.HasPrefix(cells[1], " `machinist_") {
			continue
		}
		plain := func(cell string) string { return strings.NewReplacer("`", "", " ", "").Replace(cell) }
		out[plain(cells[1])] = metric{plain(cells[2]), plain(cells[3])}
	}
	return out
}

func TestTheDocumentationNamesEveryMetric(t *testing.T) {
	seen := registry{}
	if _, err := cloud.NewMetrics(seen); err != nil {
		t.Fatal(err)
	}
	if _, err := machine.NewMetrics(seen, "any", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := machinedeployment.NewMetrics(seen); err != nil {
		t.Fatal(err)
	}
	if _, err := healthcheck.NewMetrics(seen); err != nil {
		t.Fatal(err)
	}
	if _, err := orphans.NewMetrics(seen); err != nil {
		t.Fatal(err)
	}
	op := process(t, seen)
	if err := drain.New(drain.Options{Metrics: seen, Clock: clock.RealClock{}}).Register(op.Manager(), nil); err != nil {
		t.Fatal(err)
	}

	want := documented(t)
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if row, found := want[name]; !found || row != seen[name] {
			t.Errorf("%s is a %s with the labels %q; the documentation says %+v", name, seen[name].kind, seen[name].labels, row)
		}
	}
	for name := range want {
		if _, found := seen[name]; !found {
			t.Errorf("%s is documented, and nobody registers it", name)
		}
	}
	for _, name := range inSource(t) {
		if _, found := seen[name]; !found {
			t.Errorf("the source makes %s, which this test does not know of", name)
		}
	}
}

// process makes what both processes have in common.
func process(t *testing.T, registerer prometheus.Registerer) *operator.Operator {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: "https://127.0.0.1:1"}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c"}},
		CurrentContext: "c",
	}, kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c := operator.DefaultConfig("reference")
	c.ControlKubeconfig, c.TargetKubeconfig, c.LeaderElect = kubeconfig, operator.None, false
	c.MetricsBindAddress, c.HealthProbeBindAddress = "0", "127.0.0.1:0"
	c.LeaderElectionNamespace = "default"
	op, err := operator.New(c, operator.Options{Scheme: runtime.NewScheme(), Registerer: registerer,
		Logger: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	return op
}

var made = regexp.MustCompile(`(?:Name:\s*|NewDesc\()"(machinist_[a-z_]+)"`)

// inSource returns the metrics that the source makes, wherever that may be.
func inSource(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, found := range made.FindAllStringSubmatch(string(source), -1) {
			names = append(names, found[1])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Fatal("no metric was found in the source")
	}
	return names
}
