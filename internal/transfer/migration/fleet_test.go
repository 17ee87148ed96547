package migration

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/manifests/sources"
)

// oldFleet is the input of a plan. Each old machine has an instance of the same name, and each instance has a Node.
type oldFleet struct {
	testing.TB
	system    source.System
	migration *v1beta1.Migration
	objects   []*unstructured.Unstructured
	cloud     *fakeCloud
	secrets   []client.Object
	own       *ownObjects
	nodes     nodes
	redactor  redactor
}

func secretsOfSamples() []client.Object {
	secret := func(namespace, name string, keys ...string) client.Object {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{}}
		for _, key := range keys {
			s.Data[key] = []byte(name + "/" + key)
		}
		return s
	}
	return []client.Object{
		secret("kube-system", "azure-account", "client", "secret"),
		secret("cloud-init-settings", "general-kube-system-bootstrap-config", "cloud-config"),
		secret("shoot--fleet--one", "cloudprovider", "clientID", "clientSecret"),
		secret("shoot--fleet--one", "shoot--fleet--one-pool-z1-1f2e3", "userData"),
		secret("openshift-machine-api", "azure-cloud-credentials", "azure_client_id", "azure_client_secret"),
		secret("openshift-machine-api", "worker-user-data", "userData"),
		secret("clusters", "one-credentials", "token"),
		secret("clusters", "other-credentials", "token"),
		secret("clusters", "by-hand", "value"),
	}
}

func fleetOf(t testing.TB, group, sample string) *oldFleet {
	t.Helper()
	f := newFleet(t, group)
	f.add(sources.Samples(group)[sample]...)
	return f
}

// namespaceOfSamples returns the namespace of the Secrets to which the samples refer.
func namespaceOfSamples(group string) string {
	switch group {
	case provider.SourceGardener:
		return "shoot--fleet--one"
	case provider.SourceOpenShift:
		return "openshift-machine-api"
	case provider.SourceClusterAPI:
		return "clusters"
	}
	return "kube-system"
}

func newFleet(t testing.TB, group string) *oldFleet {
	system := source.Systems()[group]
	if l, ok := system.(source.Linked); ok {
		system = l.With(sources.LinkedObjects(group))
	}
	return &oldFleet{
		TB: t, system: system,
		migration: &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "move", UID: "move"},
			Spec: v1beta1.MigrationSpec{Source: group, SourceNamespace: namespaceOfSamples(group), Provider: "sim"}},
		cloud: &fakeCloud{owners: map[string]types.UID{}}, secrets: secretsOfSamples(), own: noOwnObjects(),
		nodes: nodes{byName: map[string]*corev1.Node{}, byProviderID: map[string][]*corev1.Node{}},
	}
}

func noOwnObjects() *ownObjects {
	return &ownObjects{migration: "move", classes: map[string]*v1beta1.MachineClass{},
		deployments: map[string]*v1beta1.MachineDeployment{}, sets: map[string]*v1beta1.MachineSet{},
		checks: map[string]*v1beta1.MachineHealthCheck{}, machines: map[string]*v1beta1.Machine{},
		byProviderID: map[string]*v1beta1.Machine{}}
}

// add adds old objects. Each machine also gets an instance and a Node.
func (f *oldFleet) add(objects ...*unstructured.Unstructured) {
	for _, object := range objects {
		object = object.DeepCopy()
		f.objects = append(f.objects, object)
		if f.role(object) != source.RoleMachine {
			continue
		}
		f.cloud.located = append(f.cloud.located, instanceOf(object.GetName(), object.GetUID()))
		c := f.system.Convert(source.RoleMachine, object, nil)
		if c.Machine == nil || c.Machine.NodeName == "" {
			continue
		}
		f.node(c.Machine.NodeName, "sim:///"+object.GetName())
	}
}

func (f *oldFleet) node(name, providerID string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name)},
		Spec: corev1.NodeSpec{ProviderID: providerID}}
	f.nodes.byName[name] = node
	f.nodes.byProviderID[providerID] = append(f.nodes.byProviderID[providerID], node)
	return node
}

func (f *oldFleet) role(object *unstructured.Unstructured) source.Role {
	for _, kind := range f.system.Kinds() {
		if kind.GroupVersionKind == object.GroupVersionKind() {
			return kind.Role
		}
	}
	f.Fatalf("%s does not have the kind %s", f.system.Group(), object.GetKind())
	return ""
}

func (f *oldFleet) named(kind, name string) *unstructured.Unstructured {
	f.Helper()
	i := slices.IndexFunc(f.objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == kind && o.GetName() == name
	})
	if i < 0 {
		f.Fatalf("there is no old %s %s", kind, name)
	}
	return f.objects[i]
}

func (f *oldFleet) addCopy(kind, name, as string, change func(*unstructured.Unstructured)) {
	f.Helper()
	object := f.named(kind, name).DeepCopy()
	object.SetName(as)
	object.SetUID(types.UID(as))
	if f.role(object) == source.RoleMachine {
		_ = unstructured.SetNestedField(object.Object, as, "status", "nodeRef", "name")
	}
	if change != nil {
		change(object)
	}
	f.add(object)
}

func write(t testing.TB, object *unstructured.Unstructured, value any, path ...string) {
	t.Helper()
	if err := unstructured.SetNestedField(object.Object, value, path...); err != nil {
		t.Fatal(err)
	}
}

func (f *oldFleet) planner() *planner {
	reader := fake.NewClientBuilder().WithScheme(env.Scheme()).WithObjects(f.secrets...).Build()
	return &planner{migration: f.migration, system: f.system, cloud: f.cloud, own: f.own, nodes: f.nodes,
		redactor: &f.redactor, secrets: &secretReader{live: reader, source: f.migration.SourceNamespaceOrDefault(),
			sharedNamespaces: []string{"cloud-init-settings"}, seen: map[string]content{}}}
}

// visitObjects calls visit for each old object, in the same order as the migrator.
func (f *oldFleet) visitObjects(visit func(source.Role, *unstructured.Unstructured)) error {
	for _, kind := range f.system.Kinds() {
		for _, object := range f.objects {
			if object.GroupVersionKind() == kind.GroupVersionKind {
				visit(kind.Role, object)
			}
		}
	}
	return nil
}

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func (f *oldFleet) plan() *plan {
	f.Helper()
	made, err := f.planner().build(context.Background(), f.visitObjects)
	if err != nil {
		f.Fatal(err)
	}
	return made
}

func (f findings) withCode(code string) (all []objectFinding) {
	for _, one := range f {
		if one.Code == code {
			all = append(all, one)
		}
	}
	return all
}

// expect fails the test unless the plan has exactly one finding with the code, object and level.
func (p *plan) expect(t testing.TB, level provider.FindingLevel, code, object string) objectFinding {
	t.Helper()
	all := p.findings.withCode(code)
	if len(all) != 1 || all[0].Level != level || all[0].object != object {
		t.Errorf("expected the %s %s of %s, got %d:\n%s", level, code, object, len(all), p.findings.text())
		return objectFinding{}
	}
	return all[0]
}

func (p *plan) blockers() []string {
	codes := map[string]bool{}
	for _, one := range p.findings {
		if one.Level == provider.FindingBlocker {
			codes[one.Code] = true
		}
	}
	return slices.Sorted(maps.Keys(codes))
}

// objects returns all objects of the plan in the order of their creation.
func (p *plan) objects(m *v1beta1.Migration, group string) (all []client.Object) {
	for _, c := range p.classes {
		for _, secret := range c.secrets {
			all = append(all, secret)
		}
	}
	all = append(all, p.manifests()...)
	owners := map[*set]*v1beta1.MachineSet{}
	for _, d := range p.deployments {
		d.object.UID = types.UID("our-" + d.object.Name)
		for _, s := range d.sets {
			setOwner(s.object, d.object, "MachineDeployment")
			all = append(all, s.object)
			owners[s] = s.object
		}
	}
	for _, s := range p.sets {
		owners[s] = s.object
	}
	for _, one := range p.machines {
		if s := owners[one.set]; s != nil {
			s.UID = types.UID("our-" + s.Name)
		}
		all = append(all, one.newMachine(m, owners[one.set], origin(group, one.old)))
	}
	return all
}

func manifest(t testing.TB, objects []client.Object) string {
	t.Helper()
	var b strings.Builder
	for _, object := range objects {
		data, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString("---\n# " + kindOf(object) + "\n" + strings.ReplaceAll(string(data), "status: {}\n", ""))
	}
	return b.String()
}
