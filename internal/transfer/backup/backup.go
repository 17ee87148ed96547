// Package backup saves the objects of a fleet to a file and restores them in a control cluster.
//
// A backup omits the fields that are valid only in one cluster: UIDs, resource versions, owner references, finalizers
// and status. After a restore, owners find their objects by labels. Each restored Machine adopts its instance by the
// provider ID in its spec. The MachineClass temporarily permits this adoption.
package backup

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsyaml "sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
)

// Fleet is the content of a backup.
type Fleet struct {
	// ClusterID is the cluster ID in the tags of the instances.
	ClusterID string
	// BackupTime is the time of the backup.
	BackupTime time.Time
	// Unverified explains why the content may have changed since the backup was written. It is empty if the checksum is
	// correct.
	Unverified string
	checksum   string // as read from the file
	// Objects are in the order in which Restore creates them.
	Objects []*unstructured.Unstructured
}

// kinds returns the kinds in the order of their restoration. A kind comes after the kinds that it depends on.
// MachineSets and MachineDeployments come after the Machines, because a MachineSet creates new Machines as long as
// its own Machines are missing. MachineDisruptionBudgets come before MachineSets, so that budgets limit replacements
// from the start.
func kinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Secret"),
		v1beta1.GroupVersion.WithKind("MachineClass"),
		v1beta1.GroupVersion.WithKind("Machine"),
		v1beta1.GroupVersion.WithKind("MachineDisruptionBudget"),
		v1beta1.GroupVersion.WithKind("MachineSet"),
		v1beta1.GroupVersion.WithKind("MachineDeployment"),
		v1beta1.GroupVersion.WithKind("MachineHealthCheck"),
	}
}

// Kinds returns the kinds of a backup in the order of their restoration.
func Kinds() (names []string) {
	for _, kind := range kinds() {
		names = append(names, kind.Kind)
	}
	return names
}

// Take creates a backup of a namespace, or of all namespaces if namespace is empty. Without secrets, the backup
// contains no Secrets. The backup does not contain objects that are being deleted. Take returns the names of these
// objects.
func Take(ctx context.Context, cluster client.Reader, namespace string, secrets bool) (f Fleet, deleted []string,
	err error) {
	all, err := List(ctx, cluster, namespace, secrets)
	if err != nil {
		return Fleet{}, nil, err
	}
	for _, object := range all {
		if object.GetDeletionTimestamp() != nil {
			deleted = append(deleted, nameOf(object))
		}
	}
	f = FromObjects(slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool {
		return isSecret(o) && !resolve.Usable(o)
	}))
	for _, object := range f.Objects {
		if isSecret(object) {
			// Machinist needs only the data. Read accepts only the type Opaque, because Kubernetes acts on other types.
			object.Object["type"] = string(corev1.SecretTypeOpaque)
		}
	}
	return f, deleted, nil
}

func isSecret(object *unstructured.Unstructured) bool {
	return object.GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("Secret")
}

// List returns the unchanged objects of a namespace, or of all namespaces if namespace is empty.
func List(ctx context.Context, cluster client.Reader, namespace string, secrets bool) (all []*unstructured.Unstructured,
	err error) {
	for _, kind := range kinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		options := []client.ListOption{client.InNamespace(namespace)}
		if kind.Kind == "Secret" {
			if !secrets {
				continue
			}
			options = append(options, client.HasLabels{v1beta1.LabelSecretUse})
		}
		if err := cluster.List(ctx, list, options...); err != nil {
			return nil, fmt.Errorf("list objects of kind %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	return all, nil
}

// FromObjects creates a backup of the given objects. FromObjects skips objects that are being deleted. FromObjects
// does not change the given objects.
func FromObjects(objects []*unstructured.Unstructured) (f Fleet) {
	for _, object := range objects {
		if object.GetDeletionTimestamp() == nil {
			f.Objects = append(f.Objects, withoutClusterState(object.DeepCopy()))
		}
	}
	return f
}

func withoutClusterState(object *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{}}
	for key, value := range object.Object {
		if key != "metadata" && key != "status" {
			out.Object[key] = value
		}
	}
	out.SetGroupVersionKind(object.GroupVersionKind())
	out.SetName(object.GetName())
	out.SetNamespace(object.GetNamespace())
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	if annotations[v1beta1.AnnotationMovingTo] != "" {
		// A move pauses and freezes objects only in the source cluster.
		delete(annotations, v1beta1.AnnotationPaused)
		if labels[v1beta1.LabelFreeze] == v1beta1.FreezeMoving {
			delete(labels, v1beta1.LabelFreeze)
		}
	}
	out.SetLabels(labels)
	// Restore sets the permission again. The last applied configuration does not describe the restored object.
	for _, key := range []string{v1beta1.AnnotationAdoptFromCluster, v1beta1.AnnotationAdoptFromClusterUntil,
		v1beta1.AnnotationRemoveOrphansUntil, v1beta1.AnnotationMovingTo, v1beta1.AnnotationMovedTo,
		v1beta1.AnnotationMovedFrom, corev1.LastAppliedConfigAnnotation} {
		delete(annotations, key)
	}
	out.SetAnnotations(annotations)
	if object.GetKind() == "MachineSet" {
		// Only the template of an owned set may have these labels. The deployment adds them again when it adopts the
		// set.
		for _, key := range []string{v1beta1.LabelProvider, v1beta1.LabelMachineSet, v1beta1.LabelMachineDeployment} {
			unstructured.RemoveNestedField(out.Object, "spec", "template", "metadata", "labels", key)
		}
	}
	return out
}

const (
	headName     = "machinist-backup"
	clusterIDKey = "clusterID"
	takenKey     = "taken"
	// checksumKey is the key of the checksum of all other documents. The checksum detects accidental changes, but no
	// attack: an attacker can also change the checksum.
	checksumKey = "checksum"
	separator   = "---\n"
)

// Write writes the backup as YAML.
func (f Fleet) Write(w io.Writer) error {
	var objects bytes.Buffer
	for _, object := range f.Objects {
		if err := writeDocument(&objects, object.Object); err != nil {
			return err
		}
	}
	var head bytes.Buffer
	if err := writeDocument(&head, &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: headName},
		Data: map[string]string{clusterIDKey: f.ClusterID, takenKey: f.BackupTime.UTC().Format(time.RFC3339),
			checksumKey: checksumOf(objects.Bytes())},
	}); err != nil {
		return err
	}
	for _, part := range [][]byte{head.Bytes(), objects.Bytes()} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

func writeDocument(to *bytes.Buffer, document any) error {
	text, err := sigsyaml.Marshal(document)
	if err != nil {
		return fmt.Errorf("encode the backup: %w", err)
	}
	to.WriteString(separator)
	to.Write(text)
	return nil
}

func checksumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func afterHead(text []byte) []byte {
	if i := bytes.Index(text, []byte("\n"+separator)); i >= 0 {
		return text[i+1:]
	}
	return nil
}

// Read parses the output of Write. Errors contain the number of the invalid document.
func Read(text []byte) (f Fleet, err error) {
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for n := 1; ; n++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Fleet{}, fmt.Errorf("document %d: %w", n, err)
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		object := &unstructured.Unstructured{}
		if err := sigsyaml.UnmarshalStrict(document, &object.Object); err != nil {
			return Fleet{}, fmt.Errorf("document %d: %w", n, err)
		}
		if err := f.add(object); err != nil {
			return Fleet{}, fmt.Errorf("document %d: %w", n, err)
		}
	}
	if f.ClusterID == "" {
		return Fleet{}, fmt.Errorf("the file was not written by machinist backup: it has no ConfigMap %s with data.%s",
			headName,
			clusterIDKey)
	}
	switch f.checksum {
	case "":
		f.Unverified = fmt.Sprintf("ConfigMap %s has no data.%s: the backup was written by an earlier version", headName,
			checksumKey)
	case checksumOf(afterHead(text)):
	default:
		f.Unverified = fmt.Sprintf("data.%s of ConfigMap %s is not the checksum of the objects: the file was changed or is "+
			"incomplete", checksumKey, headName)
	}
	rank := func(o *unstructured.Unstructured) int { return slices.Index(kinds(), o.GroupVersionKind()) }
	slices.SortStableFunc(f.Objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return f, nil
}

func (f *Fleet) add(object *unstructured.Unstructured) error {
	switch kind := object.GroupVersionKind(); {
	case kind.Kind == "ConfigMap" && object.GetName() == headName:
		f.ClusterID, _, _ = unstructured.NestedString(object.Object, "data", clusterIDKey)
		f.checksum, _, _ = unstructured.NestedString(object.Object, "data", checksumKey)
		text, _, _ := unstructured.NestedString(object.Object, "data", takenKey)
		var err error
		if f.BackupTime, err = time.Parse(time.RFC3339, text); err != nil {
			return fmt.Errorf("ConfigMap %s: data.%s: %q is not a time", headName, takenKey, text)
		}
		return nil
	case !slices.Contains(kinds(), kind):
		return fmt.Errorf("%s %q: a backup cannot contain this kind", kind, object.GetName())
	case object.GetName() == "" || object.GetNamespace() == "":
		return fmt.Errorf("%s: metadata.name and metadata.namespace must be set, not %q and %q", kind.Kind, object.GetName(),
			object.GetNamespace())
	case isSecret(object):
		if err := checkSecret(object); err != nil {
			return err
		}
	}
	f.Objects = append(f.Objects, withoutClusterState(object))
	return nil
}

// checkSecret refuses Secrets of types on which Kubernetes acts, such as tokens of ServiceAccounts. Machinist never
// needs such Secrets.
func checkSecret(secret *unstructured.Unstructured) error {
	name := secret.GetNamespace() + "/" + secret.GetName()
	if kind, _, _ := unstructured.NestedString(secret.Object, "type"); kind != "" && kind != string(corev1.SecretTypeOpaque) {
		return fmt.Errorf("secret %s: type: %q is not supported, only %s", name, kind, corev1.SecretTypeOpaque)
	}
	if !resolve.Usable(secret) {
		return fmt.Errorf("secret %s: metadata.labels[%s]: %q must be %s, %s or %s", name, v1beta1.LabelSecretUse,
			secret.GetLabels()[v1beta1.LabelSecretUse], v1beta1.SecretUseCredentials, v1beta1.SecretUseUserData,
			v1beta1.SecretUseBoth)
	}
	return nil
}

// Count returns the number of objects of a kind.
func (f Fleet) Count(kind string) (n int) {
	for _, object := range f.Objects {
		if object.GetKind() == kind {
			n++
		}
	}
	return n
}

func providerID(object *unstructured.Unstructured) string {
	id, _, _ := unstructured.NestedString(object.Object, "spec", "providerID")
	return id
}
