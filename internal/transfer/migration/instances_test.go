package migration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

func classOfInstances(namespace string) *v1beta1.MachineClass {
	return &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"},
		Spec: v1beta1.MachineClassSpec{Provider: "sim", Adoption: v1beta1.AdoptionAllow,
			ProviderSpec: &runtime.RawExtension{Raw: []byte(`{"size":"small"}`)}}}
}

// unmanagedFleet returns the input of a plan with the given instances. Each instance has a Node.
func unmanagedFleet(t testing.TB, names ...string) *oldFleet {
	f := newFleet(t, v1beta1.MigrationSourceInstances)
	f.system = noSystem{}
	f.migration.Spec.SourceNamespace = ""
	f.migration.Spec.Instances = &v1beta1.MigrationInstances{ClassRef: v1beta1.LocalRef{Name: "small"}}
	f.own.classes["small"] = classOfInstances("fleet")
	for _, name := range names {
		f.cloud.found = append(f.cloud.found, foundInstance(name))
		f.readyNode(name)
	}
	return f
}

// readyNode adds the Node of an instance.
func (f *oldFleet) readyNode(instance string) {
	f.node(instance, "sim:///"+instance).Status = readyStatus()
}

func readyStatus() corev1.NodeStatus {
	return corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}
}

func foundInstance(name string) provider.FoundInstance {
	return provider.FoundInstance{Instance: instanceOf(name, "").Instance, Name: name,
		Metadata: map[string]string{"pool": strings.SplitN(name, "-", 2)[0]}, Networks: []string{"net"}}
}

func (f *oldFleet) planInstances() *plan {
	f.Helper()
	p := f.planner()
	p.resolve = func(context.Context, *v1beta1.MachineClass) (provider.Class, error) { return provider.Class{}, nil }
	made, err := p.build(context.Background(), f.visitObjects)
	if err != nil {
		f.Fatal(err)
	}
	return made
}

func (p *plan) adopted() map[string]string {
	all := map[string]string{}
	for _, m := range p.machines {
		all[m.object.Name] = m.instance.ProviderID
	}
	return all
}

// Rule: adoption-groups-instances.
func TestPlanGroupsInstances(t *testing.T) {
	f := unmanagedFleet(t, "web-1", "web-2", "db-1")
	f.migration.Spec.Instances.GroupBy = "pool"
	made := f.planInstances()
	if blockers := made.blockers(); len(blockers) > 0 {
		t.Fatalf("the plan has Blockers:\n%s", made.findings.text())
	}
	want := map[string]string{"web-1": "sim:///web-1", "web-2": "sim:///web-2", "db-1": "sim:///db-1"}
	if got := made.adopted(); !maps.Equal(got, want) {
		t.Errorf("the plan adopts %v, want %v", got, want)
	}
	replicas := map[string]int32{}
	for _, d := range made.deployments {
		replicas[d.object.Name] = d.object.ReplicasOrDefault()
		if len(d.sets) != 1 || !sameRevision(d.sets[0].object, d.object) {
			t.Errorf("deployment %s has no set with its own template, so that a rollout would replace its machines",
				d.object.Name)
		}
		if got := d.sets[0].object.Spec.Template.Spec.Timeouts.CreationOrDefault(); got != 24*time.Hour {
			t.Errorf("the machines of deployment %s have only %s to become Ready", d.object.Name, got)
		}
		if d.object.Spec.Template.Spec.ClassRef.Name != "small" || d.object.Labels[v1beta1.LabelFreeze] == "" {
			t.Errorf("deployment %s is not frozen or has another class: %+v", d.object.Name, d.object)
		}
	}
	if !maps.Equal(replicas, map[string]int32{"web": 2, "db": 1}) {
		t.Errorf("the deployments have the replicas %v", replicas)
	}
	if objects := made.manifests(); len(objects) != 2 {
		t.Errorf("the plan creates other objects than deployments and sets: %v", objects)
	}
	machine := made.machines[0].newMachine(f.migration, made.deployments[0].sets[0].object, origin("instances",
		made.machines[0].old))
	if machine.Spec.ProviderID == "" || machine.Spec.ClassRef.Name != "small" ||
		oldUID(machine) != uidOf(machine.Spec.ProviderID) || !hasKey(machine.Annotations, v1beta1.AnnotationPaused) {
		t.Errorf("the new Machine is %+v", machine)
	}
}

func TestPlanSelectsInstances(t *testing.T) {
	other := foundInstance("web-9")
	other.Networks = []string{"other"}
	for name, c := range map[string]struct {
		selector v1beta1.MigrationInstances
		want     []string
	}{
		"all":   {want: []string{"db-1", "web-1", "web-2", "web-9"}},
		"names": {v1beta1.MigrationInstances{Names: []string{"db-*", "web-2"}}, []string{"db-1", "web-2"}},
		"metadata": {v1beta1.MigrationInstances{Metadata: map[string]v1beta1.MetadataValue{"pool": "db"}},
			[]string{"db-1"}},
		"networks": {v1beta1.MigrationInstances{Networks: []string{"x", "other"}}, []string{"web-9"}},
		"several": {v1beta1.MigrationInstances{Names: []string{"web-*"}, Networks: []string{"net"}},
			[]string{"web-1", "web-2"}},
	} {
		f := unmanagedFleet(t, "web-1", "web-2", "db-1")
		f.cloud.found = append(f.cloud.found, other)
		f.readyNode("web-9")
		c.selector.ClassRef.Name = "small"
		f.migration.Spec.Instances = &c.selector
		if got := slices.Sorted(maps.Keys(f.planInstances().adopted())); !slices.Equal(got, c.want) {
			t.Errorf("%s: the plan adopts %v, want %v", name, got, c.want)
		}
	}
}

// Rule: adoption-skips-others.
func TestPlanSkipsInstancesOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(f *oldFleet, in *provider.FoundInstance, node *corev1.Node)
		code   string
	}{
		"another Machine has it": {func(f *oldFleet, in *provider.FoundInstance, _ *corev1.Node) {
			f.own.byProviderID[in.Instance.ProviderID] = &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "a",
				Name: "b"}}
		}, CodeManaged},
		"another installation has it": {func(_ *oldFleet, in *provider.FoundInstance, _ *corev1.Node) {
			in.Instance.ClusterID, in.Instance.MachineUID = "elsewhere", "1"
		}, CodeManaged},
		"another system has it": {func(_ *oldFleet, in *provider.FoundInstance, _ *corev1.Node) {
			in.OtherSystem = "Gardener (tag role)"
		}, CodeManaged},
		"its Node belongs to another Machine": {func(_ *oldFleet, _ *provider.FoundInstance, node *corev1.Node) {
			node.Labels = map[string]string{v1beta1.NodeLabelMachine: "b"}
		}, CodeManaged},
		"it is being deleted": {func(_ *oldFleet, in *provider.FoundInstance, _ *corev1.Node) {
			in.Instance.State = provider.StateTerminating
		}, CodeInFlight},
		"it is stopped": {func(_ *oldFleet, in *provider.FoundInstance, _ *corev1.Node) {
			in.Instance.State = provider.StateStopped
		}, CodeNotReady},
		"it has not booted": {func(_ *oldFleet, in *provider.FoundInstance, _ *corev1.Node) {
			in.Instance.State = provider.StatePending
		}, CodeInFlight},
		"its Node is not Ready": {func(_ *oldFleet, _ *provider.FoundInstance, node *corev1.Node) {
			node.Status.Conditions[0].Status = corev1.ConditionUnknown
		}, CodeNotReady},
		"its Node has an annotation of the Cluster API": {func(_ *oldFleet, _ *provider.FoundInstance, node *corev1.Node) {
			node.Annotations = map[string]string{"cluster.x-k8s.io/machine": "b"}
		}, CodeManaged},
		"its Node has a label of Kubermatic": {func(_ *oldFleet, _ *provider.FoundInstance, node *corev1.Node) {
			node.Labels = map[string]string{"machine-controller/owned-by": "b"}
		}, CodeManaged},
		"it has no Node": {func(f *oldFleet, _ *provider.FoundInstance, node *corev1.Node) {
			delete(f.nodes.byName, node.Name)
			delete(f.nodes.byProviderID, node.Spec.ProviderID)
		}, CodeNoNode},
		"a Node has its name and other addresses": {func(f *oldFleet, in *provider.FoundInstance, node *corev1.Node) {
			delete(f.nodes.byProviderID, node.Spec.ProviderID)
			in.Instance.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
			node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.2"}}
		}, CodeNoNode},
		"it is a control plane": {func(_ *oldFleet, _ *provider.FoundInstance, node *corev1.Node) {
			node.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
		}, source.CodeControlPlane},
	} {
		f := unmanagedFleet(t, "web-1", "web-2")
		c.change(f, &f.cloud.found[1], f.nodes.byName["web-2"])
		made := f.planInstances()
		if got := made.adopted(); len(got) != 1 || got["web-1"] == "" {
			t.Errorf("%s: the plan adopts %v", name, got)
		}
		made.expect(t, provider.FindingNote, c.code, "Instance/web-2")
		f.cloud.found = f.cloud.found[1:]
		f.planInstances().expect(t, provider.FindingBlocker, CodeNothingFound, "Migration/move")
	}
	f := unmanagedFleet(t, "web-1")
	f.migration.Spec.Instances.Names = []string{"db-*"}
	if b := f.planInstances().findings.withCode(CodeNothingFound); len(b) != 1 || !strings.Contains(b[0].Message,
		"has 1 instance, and none matches. Correct --class, --name") {
		t.Errorf("no instance matches, but the findings are %v", b)
	}
}

func TestPlanBlocksInstancesThatNeedAnAdministrator(t *testing.T) {
	for name, c := range map[string]struct {
		change        func(f *oldFleet, in *provider.FoundInstance, node *corev1.Node)
		code, message string
	}{
		"the mark is missing": {func(_ *oldFleet, in *provider.FoundInstance, _ *corev1.Node) {
			in.NotAdoptable = "it has no mark"
		}, CodeNotAdoptable, "it has no mark"},
		"the Node has no provider ID": {func(f *oldFleet, in *provider.FoundInstance, node *corev1.Node) {
			delete(f.nodes.byProviderID, node.Spec.ProviderID)
			address := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
			in.Instance.Addresses, node.Status.Addresses, node.Spec.ProviderID = address, address, ""
		}, CodeNodeWithoutProviderID, `kubectl patch node web-2 --patch '{"spec":{"providerID":"sim:///web-2"}}'`},
		"the Node has another provider ID": {func(f *oldFleet, in *provider.FoundInstance, node *corev1.Node) {
			delete(f.nodes.byProviderID, node.Spec.ProviderID)
			address := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
			in.Instance.Addresses, node.Status.Addresses, node.Spec.ProviderID = address, address, "other:///web-2"
		}, CodeNodeMismatch, "spec.nodeProviderID"},
		"two Nodes have the provider ID": {func(f *oldFleet, _ *provider.FoundInstance, _ *corev1.Node) {
			f.node("web-3", "sim:///web-2")
		}, CodeNodeMismatch, "same provider ID"},
	} {
		f := unmanagedFleet(t, "web-1", "web-2")
		c.change(f, &f.cloud.found[1], f.nodes.byName["web-2"])
		got := f.planInstances().expect(t, provider.FindingBlocker, c.code, "Instance/web-2")
		if !strings.Contains(got.Message, c.message) {
			t.Errorf("%s: the message is %q, want it to contain %q", name, got.Message, c.message)
		}
	}
}

func TestPlanChecksClassOfInstances(t *testing.T) {
	for name, c := range map[string]struct {
		change       func(f *oldFleet)
		code, object string
	}{
		"missing": {func(f *oldFleet) { delete(f.own.classes, "small") }, CodeClassMissing, "Migration/move"},
		"of another provider": {func(f *oldFleet) { f.own.classes["small"].Spec.Provider = "azure" }, CodeClassInvalid,
			"Migration/move"},
		"without adoption": {func(f *oldFleet) { f.own.classes["small"].Spec.Adoption = v1beta1.AdoptionForbid },
			CodeAdoptionForbidden, "MachineClass/small"},
		"of a provider that finds no instances": {func(f *oldFleet) {
			f.cloud.findError = provider.Errorf(provider.Unimplemented, "provider sim cannot find instances without a Machine")
		}, CodeCannotImport, "MachineClass/small"},
		"with expired credentials": {func(f *oldFleet) {
			f.cloud.findError = provider.Errorf(provider.Unauthenticated, "expired")
		}, CodeCannotImport, "MachineClass/small"},
	} {
		t.Run(name, func(t *testing.T) {
			f := unmanagedFleet(t, "web-1")
			c.change(f)
			f.planInstances().expect(t, provider.FindingBlocker, c.code, c.object)
		})
	}
}

func TestPlanReportsDifferencesFromClass(t *testing.T) {
	f := unmanagedFleet(t, "web-1", "web-2")
	f.cloud.found[1].Differences = []provider.Difference{{Field: "size", Instance: "large", Class: "small"}}
	made := f.planInstances()
	got := made.expect(t, provider.FindingLoss, CodeDiffersFromClass, "Instance/web-2")
	if got.Path != "size" || !strings.Contains(got.Message, `has "large", and class small has "small"`) {
		t.Errorf("the finding is %+v", got)
	}
	if len(made.machines) != 2 {
		t.Errorf("the plan adopts %v", made.adopted())
	}
}

func TestPlanNamesMachinesAfterInstances(t *testing.T) {
	f := unmanagedFleet(t, "web-1")
	for i, name := range []string{"web-1", "Web 2.example.com", strings.Repeat("x", 80), ""} {
		in := foundInstance(fmt.Sprintf("id-%d", i))
		in.Name = name
		f.cloud.found = append(f.cloud.found, in)
		f.readyNode(in.Instance.NodeName)
	}
	f.migration.Spec.Instances.GroupBy = "no such key"
	made := f.planInstances()
	if blockers := made.blockers(); len(blockers) > 0 || len(made.adopted()) != 5 {
		t.Fatalf("the plan adopts %v:\n%s", made.adopted(), made.findings.text())
	}
	for name := range made.adopted() {
		if strings.ContainsAny(name, ". ") || name == "" || len(name) > v1beta1.MaxMachineNameLength {
			t.Errorf("a Machine has the name %q", name)
		}
	}
	if n := len(made.findings.withCode(source.CodeRenamed)); n != 4 {
		t.Errorf("%d of 4 new names are reported:\n%s", n, made.findings.text())
	}
	if made.deployments[0].object.Name != "move" || len(made.findings.withCode(CodeNoGroup)) != 5 {
		t.Errorf("the deployment is %s:\n%s", made.deployments[0].object.Name, made.findings.text())
	}
}

// The user data of the class contains the kubelet version, so a replacement needs it.
func TestPlanKeepsVersionOfNodes(t *testing.T) {
	f := unmanagedFleet(t, "web-1", "web-2", "db-1")
	f.migration.Spec.Instances.GroupBy = "pool"
	for _, name := range []string{"web-1", "web-2", "db-1"} {
		f.nodes.byName[name].Status.NodeInfo.KubeletVersion = "v1.36.3"
	}
	for _, d := range f.planInstances().deployments {
		if v := d.object.Spec.Template.Spec.Version; v != "" {
			t.Errorf("without user data, deployment %s has the version %s", d.object.Name, v)
		}
	}
	f.own.classes["small"].Spec.UserDataRef = &v1beta1.UserDataRef{Name: "boot"}
	f.planInstances().expect(t, provider.FindingBlocker, CodeSecretUnreadable, "MachineClass/small")
	f.secrets = append(f.secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "boot"},
		Data: map[string][]byte{v1beta1.DefaultUserDataKey: []byte("kubelet: <<KUBELET_VERSION>>")}})
	made := f.planInstances()
	for _, d := range made.deployments {
		if v := d.object.Spec.Template.Spec.Version; v != "v1.36.3" || !sameRevision(d.sets[0].object, d.object) {
			t.Errorf("deployment %s has the version %q", d.object.Name, v)
		}
	}
	for _, m := range made.machines {
		if m.object.Spec.Version != "v1.36.3" {
			t.Errorf("Machine %s has the version %q", m.object.Name, m.object.Spec.Version)
		}
	}
	f.nodes.byName["web-2"].Status.NodeInfo.KubeletVersion = "v1.37.0"
	f.planInstances().expect(t, provider.FindingBlocker, CodeDifferentVersions, "MachineDeployment/web")
}

// The user agrees to the instances of the plan. Another instance makes another plan, but not after the phase Copying,
// in which the sets get their size.
//
// Rule: adoption-adopts-the-plan.
func TestPlanOfInstancesIsFixed(t *testing.T) {
	f := unmanagedFleet(t, "web-1")
	before := f.planInstances()
	f.cloud.found = append(f.cloud.found, foundInstance("web-2"))
	f.readyNode("web-2")
	if after := f.planInstances(); after.hash == before.hash {
		t.Errorf("the plan %s does not change with another instance", after.hash)
	}
	m := before.machines[0].newMachine(f.migration, nil, origin("instances", before.machines[0].old))
	m.UID = "1"
	f.own.machines[m.Name], f.own.byProviderID[m.Spec.ProviderID] = m, m
	f.cloud.owners = map[string]types.UID{m.Spec.ProviderID: m.UID}
	f.cloud.found[0].OtherSystem = "an old system"
	f.migration.Status.Phase = v1beta1.MigrationCommitting
	if got := f.planInstances().adopted(); len(got) != 1 || got["web-1"] == "" {
		t.Errorf("in the phase Committing, the plan has the instances %v", got)
	}
}
