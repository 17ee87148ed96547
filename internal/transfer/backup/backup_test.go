package backup

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

const machine = `
apiVersion: machinist.dev/v1beta1
kind: Machine
metadata:
  name: web-1
  namespace: prod
  uid: 6c1a6a3e
  resourceVersion: "7"
  generation: 3
  creationTimestamp: "2026-01-01T00:00:00Z"
  finalizers: [machinist.dev/machine]
  ownerReferences: [{apiVersion: machinist.dev/v1beta1, kind: MachineSet, name: web, uid: x}]
  labels: {pool: web, machinist.dev/machine-set: web}
  annotations: {mine: "yes", kubectl.kubernetes.io/last-applied-configuration: "{}"}
spec: {classRef: {name: small}, providerID: "sim://a/b/c"}
status: {phase: Running}
`

func TestBackupHasNoClusterState(t *testing.T) {
	want := object(t, `
apiVersion: machinist.dev/v1beta1
kind: Machine
metadata:
  name: web-1
  namespace: prod
  labels: {pool: web, machinist.dev/machine-set: web}
  annotations: {mine: "yes"}
spec: {classRef: {name: small}, providerID: "sim://a/b/c"}
`)
	if diff := cmp.Diff(want.Object, withoutClusterState(object(t, machine)).Object); diff != "" {
		t.Error(diff)
	}
}

func TestBackupOfMovedObjectIsNotStopped(t *testing.T) {
	o := object(t, machine)
	o.SetAnnotations(map[string]string{"mine": "yes", v1beta1.AnnotationPaused: "", v1beta1.AnnotationMovingTo: "there",
		v1beta1.AnnotationMovedFrom: "here"})
	o.SetLabels(map[string]string{"pool": "web", v1beta1.LabelFreeze: v1beta1.FreezeMoving})
	got := withoutClusterState(o)
	if diff := cmp.Diff(map[string]string{"mine": "yes"}, got.GetAnnotations()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"pool": "web"}, got.GetLabels()); diff != "" {
		t.Error(diff)
	}
	// If a user has paused or frozen an object, the backup keeps the annotation and the label.
	o.SetAnnotations(map[string]string{v1beta1.AnnotationPaused: ""})
	o.SetLabels(map[string]string{v1beta1.LabelFreeze: "by-me"})
	got = withoutClusterState(o)
	if len(got.GetAnnotations()) != 1 || len(got.GetLabels()) != 1 {
		t.Errorf("got %v and %v", got.GetAnnotations(), got.GetLabels())
	}
}

func TestReadReturnsObjectsInTheOrderOfCreation(t *testing.T) {
	kind := func(kind string) *unstructured.Unstructured {
		return object(t, strings.Replace(machine, "kind: Machine\n", "kind: "+kind+"\n", 1))
	}
	f := Fleet{ClusterID: "the-cluster", BackupTime: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	for _, name := range []string{"MachineDeployment", "MachineSet", "Machine", "MachineClass"} {
		f.Objects = append(f.Objects, withoutClusterState(kind(name)))
	}
	var text bytes.Buffer
	if err := f.Write(&text); err != nil {
		t.Fatal(err)
	}
	got, err := Read(text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, o := range got.Objects {
		kinds = append(kinds, o.GetKind())
	}
	if diff := cmp.Diff([]string{"MachineClass", "Machine", "MachineSet", "MachineDeployment"}, kinds); diff != "" {
		t.Error(diff)
	}
	if got.ClusterID != f.ClusterID || !got.BackupTime.Equal(f.BackupTime) || got.Count("Machine") != 1 ||
		got.Unverified != "" {
		t.Errorf("got %+v", got)
	}
}

func TestChecksumShowsChanges(t *testing.T) {
	f := Fleet{ClusterID: "c", BackupTime: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	f.Objects = []*unstructured.Unstructured{withoutClusterState(object(t, machine))}
	var written bytes.Buffer
	if err := f.Write(&written); err != nil {
		t.Fatal(err)
	}
	text := written.String()
	checksum := text[strings.Index(text, "  checksum: "):strings.Index(text, "  clusterID: ")]
	for name, test := range map[string]struct{ text, want string }{
		"unchanged":       {text, ""},
		"another class":   {strings.Replace(text, "small", "large", 1), "was changed or is incomplete"},
		"cut off":         {text[:strings.LastIndex(text, "---\n")], "was changed or is incomplete"},
		"another object":  {text + "---\n" + machine, "was changed or is incomplete"},
		"no checksum":     {strings.Replace(text, checksum, "", 1), "has no data.checksum"},
		"checksum erased": {strings.Replace(text, checksum, "  checksum: \"\"\n", 1), "has no data.checksum"},
	} {
		got, err := Read([]byte(test.text))
		if err != nil || (got.Unverified == "") != (test.want == "") || !strings.Contains(got.Unverified, test.want) {
			t.Errorf("%s: got %q, error %v; want %q", name, got.Unverified, err, test.want)
		}
	}
}

const labelledSecret = `apiVersion: v1
kind: Secret
metadata: {name: creds, namespace: prod, labels: {machinist.dev/secret-use: credentials}}
`

func TestSecretsOfBackupAreOpaque(t *testing.T) {
	of := func(change func(*unstructured.Unstructured)) client.Object {
		o := object(t, labelledSecret)
		change(o)
		return o
	}
	cluster := fake.NewClientBuilder().WithObjects(
		of(func(o *unstructured.Unstructured) { o.Object["type"] = "kubernetes.io/tls" }),
		of(func(o *unstructured.Unstructured) {
			o.SetName("unusable")
			o.SetLabels(map[string]string{v1beta1.LabelSecretUse: "yes"})
		})).Build()
	all := interceptor.NewClient(cluster, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch,
		l client.ObjectList, o ...client.ListOption) error {
		if l.GetObjectKind().GroupVersionKind().Kind != "SecretList" {
			return nil
		}
		return c.List(ctx, l, o...)
	}})
	f, _, err := Take(t.Context(), all, "prod", true)
	if err != nil || len(f.Objects) != 1 || f.Objects[0].Object["type"] != "Opaque" || f.Objects[0].GetName() != "creds" {
		t.Errorf("got %v, error %v", f.Objects, err)
	}
}

// Rule: bad-input-names-field.
func TestReadRefusesInvalidBackups(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: machinist-backup}\n"
	good := head + "data: {clusterID: c, taken: \"2026-01-01T00:00:00Z\"}\n"
	for name, test := range map[string]struct{ text, mentions string }{
		"empty":                      {"", "it has no ConfigMap machinist-backup"},
		"without the first document": {machine, "it has no ConfigMap machinist-backup"},
		"without a cluster ID":       {head + "data: {taken: \"2026-01-01T00:00:00Z\"}\n", "data.clusterID"},
		"without a time":             {head + "data: {clusterID: c, taken: soon}\n", `data.taken: "soon"`},
		"another kind":               {good + "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: n}\n", `document 2: /v1, Kind=Pod "p"`},
		"without a namespace":        {good + "---\napiVersion: machinist.dev/v1beta1\nkind: Machine\nmetadata: {name: m}\n", "metadata.namespace"},
		"a token of a ServiceAccount": {good + "---\n" + labelledSecret + "type: kubernetes.io/service-account-token\n",
			`secret prod/creds: type: "kubernetes.io/service-account-token"`},
		"a bootstrap token": {good + "---\n" + labelledSecret + "type: bootstrap.kubernetes.io/token\n", "secret prod/creds: type"},
		"a Secret without a label": {good + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: prod}\n",
			`secret prod/s: metadata.labels[machinist.dev/secret-use]: ""`},
		"a duplicate key": {good + "---\nkind: Machine\nkind: Machine\n", "document 2"},
		"invalid YAML":    {"{", "document 1"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Read([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.mentions) {
				t.Errorf("got %v, expected %q", err, test.mentions)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(machine))
	f.Fuzz(func(_ *testing.T, text []byte) {
		if fleet, err := Read(text); err == nil {
			_ = fleet.Write(&bytes.Buffer{})
		}
	})
}
