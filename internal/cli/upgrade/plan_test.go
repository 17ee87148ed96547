package upgrade

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
)

func add(in *Input, name, version string, strategy v1beta1.DeploymentStrategyType, steps []string, kubelets ...string) {
	set := v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "fleets", Name: name,
		UID: types.UID("set-" + name)}}
	set.Spec.Template.Spec.Version = version
	if strategy != "" {
		d := v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "fleets", Name: name, UID: types.UID(name)}}
		d.Spec.Template.Spec.Version, d.Spec.Strategy.Type = version, strategy
		for _, step := range steps {
			d.Spec.VersionSteps = append(d.Spec.VersionSteps, v1beta1.VersionStep{Version: step, ClassName: "class-" + step})
		}
		in.Deployments = append(in.Deployments, d)
		set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&d,
			v1beta1.GroupVersion.WithKind("MachineDeployment"))}
	}
	in.Sets = append(in.Sets, set)
	for i, kubelet := range kubelets {
		m := v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleets", Name: name + string(rune('a'+i)),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&set,
				v1beta1.GroupVersion.WithKind("MachineSet"))}}}
		m.Status.Version = kubelet
		in.Machines = append(in.Machines, m)
	}
}

func TestPlan(t *testing.T) {
	const rolling, inPlace = v1beta1.StrategyRollingUpdate, v1beta1.StrategyInPlace
	for name, test := range map[string]struct {
		add  func(in *Input)
		to   string
		want []string // the row of the fleet, and what must be done
	}{
		"the wanted version": {func(in *Input) { add(in, "web", "v1.36.3", rolling, nil, "v1.36.3", "v1.36.3") }, "v1.36.3",
			[]string{"machinedeployment/web   v1.36.3 (2)   none   none"}},
		"another patch": {func(in *Input) { add(in, "web", "v1.36.1", rolling, []string{"v1.35.4"}, "v1.36.1") }, "v1.36.3",
			[]string{"machinedeployment/web   v1.36.1 (1)   none   v1.36.3",
				"machinedeployment/web: Set spec.template.spec.version to v1.36.3."}},
		"without steps": {func(in *Input) { add(in, "web", "v1.34.2", rolling, nil, "v1.34.2") }, "v1.36.3",
			[]string{"machinedeployment/web   v1.34.2 (1)   2 minor versions older   v1.36.3",
				"machinedeployment/web: Set spec.template.spec.version to v1.36.3."}},
		"with steps": {func(in *Input) {
			add(in, "web", "v1.36.3", rolling, []string{"v1.33.9", "v1.35.4"}, "v1.35.4", "v1.33.2", "", "v1.33.2")
		}, "v1.36.3",
			[]string{"machinedeployment/web   v1.33.2 (2), v1.35.4 (1)   3 minor versions older   v1.34 (missing), v1.35.4, v1.36.3",
				"machinedeployment/web: Add a version of v1.34 to spec.versionSteps."}},
		"in place, steps are needed": {func(in *Input) { add(in, "web", "v1.34.2", inPlace, nil, "v1.34.2") }, "v1.36.3",
			[]string{"machinedeployment/web   v1.34.2 (1)   2 minor versions older   v1.35 (missing), v1.36.3",
				"machinedeployment/web: Add a version of v1.35 to spec.versionSteps.",
				"machinedeployment/web: Set spec.template.spec.version to v1.36.3."}},
		"in place, to an earlier version": {func(in *Input) { add(in, "web", "v1.36.3", inPlace, nil, "v1.36.3") }, "v1.34.2",
			[]string{"machinedeployment/web   v1.36.3 (1)   none   v1.34.2",
				"machinedeployment/web: The strategy InPlace changes a machine by one minor version at a time: set " +
					"spec.template.spec.version to a version between v1.34 and v1.36 first.",
				"machinedeployment/web: Set spec.template.spec.version to v1.34.2."}},
		"too old": {func(in *Input) { add(in, "web", "v1.36.3", rolling, nil, "v1.32.2") }, "v1.36.3",
			[]string{"machinedeployment/web   v1.32.2 (1)   4 minor versions older, not supported   v1.36.3"}},
		"newer": {func(in *Input) { add(in, "web", "v1.37.0", rolling, nil, "v1.35.1", "v1.37.0") }, "v1.37.0",
			[]string{"machinedeployment/web   v1.35.1 (1), v1.37.0 (1)   1 minor version newer, not supported   v1.37.0",
				"Upgrade the control plane to v1.37 first: it has v1.36.3, and kubelets must not be newer."}},
		"no machine": {func(in *Input) { add(in, "web", "v1.34.2", rolling, []string{"v1.35.4"}) }, "v1.36.3",
			[]string{"machinedeployment/web   -          -      v1.35.4, v1.36.3",
				"machinedeployment/web: Set spec.template.spec.version to v1.36.3."}},
		"a standalone set": {func(in *Input) { add(in, "old", "v1.35.2", "", nil, "v1.35.2") }, "v1.36.3",
			[]string{"machineset/old   v1.35.2 (1)   1 minor version older   v1.36.3",
				"machineset/old: A MachineSet replaces no machines after a change of its template. Change " +
					"spec.template.spec.version to v1.36.3, and replace each machine with machinist replace."}},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{ControlPlane: "v1.36.3", To: test.to}
			test.add(&in)
			var out strings.Builder
			plan := New(in)
			if err := plan.Text(&out, printer.Style{}); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			got := []string{strings.TrimSpace(lines[3])}
			for _, line := range lines[min(len(lines), 6):] {
				got = append(got, strings.TrimSpace(line))
			}
			if strings.Join(got, "\n") != strings.Join(test.want, "\n") {
				t.Errorf("the plan is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			if _, err := json.Marshal(plan); err != nil {
				t.Error(err)
			}
		})
	}
}
