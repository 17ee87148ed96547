package installation

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/internal/cli/printer"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name string, v Versions, style printer.Style) {
	t.Helper()
	var out strings.Builder
	if err := v.Text(&out, style); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func pod(name, program, image string, ready bool) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "machinist-system", Labels: map[string]string{
		LabelPartOf: PartOf, LabelName: program, LabelVersion: "1.2.3"}}}
	p.Spec.Containers = []corev1.Container{{Name: program, Image: image}}
	if ready {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return p
}

func lease(name, holder, version string) coordinationv1.Lease {
	l := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "machinist-system"}}
	identity := holder + "_0123"
	l.Spec.HolderIdentity = &identity
	if version != "" {
		l.Labels = map[string]string{LabelPartOf: PartOf, LabelName: name, LabelVersion: version}
	}
	return l
}

func kinds(release string, names ...string) []Kind {
	var all []Kind
	for _, name := range names {
		all = append(all, Kind{Name: name, Release: release, ServedVersions: []string{"v1beta1"}, Storage: "v1beta1",
			Stored: []string{"v1beta1"}})
	}
	return all
}

func client(version string) Client {
	return Client{Version: version, API: "machinist.dev/v1beta1",
		Build: version + " (commit 0123456789ab, API machinist.dev/v1beta1, go1.26.8)"}
}

const registry = "registry.example.com:5000/machinist/"

func healthy() Versions {
	return Versions{Client: client("v1.2.3"), Kinds: kinds("v1.2.3", required...), Processes: ProcessesOf([]corev1.Pod{
		pod("machinist-manager-a", "machinist-manager", registry+"machinist-manager:v1.2.3", true),
		pod("machinist-manager-b", "machinist-manager", registry+"machinist-manager:v1.2.3", true),
		pod("machinist-provider-sim-a", "machinist-provider-sim", registry+"machinist-provider-sim:v1.2.3@sha256:01", false),
	}, []coordinationv1.Lease{lease("machinist-manager", "machinist-manager-b", "v1.2.3"),
		lease("machinist-provider-azure", "host.example.com", "")})}
}

func TestText(t *testing.T) {
	skewed := healthy()
	skewed.Kinds[0].Release = "v1.2.0"
	skewed.Kinds[1].ServedVersions, skewed.Kinds[1].Stored = []string{"v1"}, []string{"v1beta1", "v1"}
	skewed.Kinds = skewed.Kinds[:4]
	skewed.Processes = append(skewed.Processes, ProcessesOf([]corev1.Pod{
		pod("machinist-manager-c", "machinist-manager", registry+"machinist-manager:v1.3.0", true),
		pod("machinist-provider-sim-b", "machinist-provider-sim", registry+"machinist-provider-sim:v1.4.0", true),
	}, nil)...)
	skewed.ReadErrors = []string{"You may not read Leases in kube-system, so the leaders there are not known."}
	for name, test := range map[string]struct {
		versions Versions
		style    printer.Style
	}{
		"healthy": {healthy(), printer.Style{ASCII: true}},
		"wide":    {healthy(), printer.Style{ASCII: true, AllColumns: true}},
		"skewed":  {skewed, printer.Style{Colour: true}},
		"client":  {Versions{Client: client("development")}, printer.Style{}},
	} {
		if name != "client" {
			test.versions.Judge()
		}
		golden(t, name, test.versions, test.style)
	}
}

func TestJudgeWarnsAboutVersionsThatDoNotWorkTogether(t *testing.T) {
	processes := func(managerVersion, providerVersion string) []Process {
		return []Process{{Program: "machinist-manager", Version: managerVersion},
			{Program: "machinist-provider-sim", Version: providerVersion}}
	}
	for _, test := range []struct {
		name     string
		versions Versions
		want     []string
	}{
		{"all have the same release", Versions{Client: client("v1.2.3"), Kinds: kinds("1.2.3", required...),
			Processes: processes("v1.2.3", "1.2.3")}, nil},
		{"the kinds are newer", Versions{Client: client("v1.2.3"), Kinds: kinds("v1.3.0", required...),
			Processes: processes("v1.2.3", "v1.2.3")}, nil},
		{"the provider is older", Versions{Client: client("v1.2.3"), Kinds: kinds("v1.2.3", required...),
			Processes: processes("v1.2.3", "v1.2.2")}, nil},
		{"the provider is newer", Versions{Client: client("v1.2.3"), Kinds: kinds("v1.3.0", required...),
			Processes: processes("v1.2.3", "v1.3.0")}, []string{"Upgrade the manager"}},
		{"the processes are newer than the kinds", Versions{Client: client("v1.3.0"), Kinds: kinds("v1.2.3", required...),
			Processes: processes("v1.3.0", "v1.2.3")}, []string{"machinist-manager has the version v1.3.0, but CustomResourceDefinitions have v1.2.3"}},
		{"the command is older", Versions{Client: client("v1.2.2"), Kinds: kinds("v1.2.3", required...),
			Processes: processes("v1.2.3", "v1.2.3")}, []string{"Upgrade this command"}},
		{"development builds cannot be compared", Versions{Client: client("development"), Kinds: kinds("", required...),
			Processes: processes("development", "v1.2.3")}, nil},
		{"kinds are missing", Versions{Client: client("v1.2.3"), Kinds: kinds("v1.2.3", "Machine", "MachineClass")},
			[]string{"lacks the CustomResourceDefinitions of MachineSet, MachineDeployment, MachineHealthCheck, MachineDisruptionBudget"}},
		{"the kinds could not be read", Versions{Client: client("v1.2.3"), Processes: processes("v1.2.3", "")}, nil},
	} {
		test.versions.Judge()
		if len(test.versions.Warnings) != len(test.want) {
			t.Errorf("%s: warnings %q, want %q", test.name, test.versions.Warnings, test.want)
			continue
		}
		for i, want := range test.want {
			if !strings.Contains(test.versions.Warnings[i], want) {
				t.Errorf("%s: %q lacks %q", test.name, test.versions.Warnings[i], want)
			}
		}
	}
}

func TestVersionOfAPodPrefersTheLease(t *testing.T) {
	for _, test := range []struct {
		name, image, lease string
		version, from      string
	}{
		{"the process reports it", "r/p:v1", "v1.2.3", "v1.2.3", "lease"},
		{"the tag", "r:5000/p:v1.2.4", "", "v1.2.4", "image"},
		{"a tag and a digest", "r:5000/p:v1.2.4@sha256:00", "", "v1.2.4", "image"},
		{"a digest", "r:5000/p@sha256:00", "", "1.2.3", "label"},
		{"the tag latest", "p:latest", "", "1.2.3", "label"},
		{"no tag", "r:5000/p", "", "1.2.3", "label"},
	} {
		var leases []coordinationv1.Lease
		if test.lease != "" {
			leases = append(leases, lease("machinist-p", "one", test.lease))
		}
		got := ProcessesOf([]corev1.Pod{pod("one", "machinist-p", test.image, true)}, leases)
		if len(got) != 1 || got[0].Version != test.version || got[0].VersionFrom != test.from {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
}

func TestKindOf(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Labels = map[string]string{LabelVersion: "1.2.3"}
	crd.Spec.Names.Kind, crd.Status.StoredVersions = "Machine", []string{"v1beta1", "v1"}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1"},
		{Name: "v1beta1", Served: true}, {Name: "v1", Served: true, Storage: true}}
	got := KindOf(crd)
	if got.Release != "1.2.3" || got.Storage != "v1" || !slices.Equal(got.ServedVersions, []string{"v1beta1", "v1"}) ||
		!slices.Equal(got.Stored, []string{"v1beta1", "v1"}) {
		t.Errorf("got %+v", got)
	}
}
