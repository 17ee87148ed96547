package installer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"machinist.dev/machinist/api/v1beta1"
)

// Release is an installation of the chart machinist-provider.
type Release struct {
	// Name and Namespace are the name of the release and the namespace of its objects.
	Name, Namespace string
	// Values override the defaults of the chart.
	Values map[string]any
}

// Render returns the objects of a release in the order of their creation. An error about a value contains its path.
type Render func(Release) ([]*unstructured.Unstructured, error)

const (
	// managedByLabel is the key of the label with the program that manages an object. In the rendered chart, its value
	// is "Helm". The operator replaces this value by "machinist-operator".
	managedByLabel = "app.kubernetes.io/managed-by"
	// Name is the name of the operator process and of its field manager.
	Name = "machinist-operator"
)

func (r *Reconciler) render(provider *v1beta1.Provider, of string) ([]*unstructured.Unstructured, error) {
	values, err := valuesOf(provider, of)
	if err != nil {
		return nil, err
	}
	objects, err := r.Render(Release{Name: processName(of), Namespace: r.Namespace, Values: values})
	if err != nil {
		return nil, err
	}
	stamped := make([]*unstructured.Unstructured, len(objects))
	for i, object := range objects {
		if stamped[i], err = stamp(object, provider); err != nil {
			return nil, err
		}
	}
	return stamped, nil
}

// valuesOf returns the values of the chart. The other fields of the spec override spec.values.
func valuesOf(provider *v1beta1.Provider, of string) (map[string]any, error) {
	spec, values := &provider.Spec, map[string]any{}
	if spec.Values != nil && len(spec.Values.Raw) > 0 {
		if err := json.Unmarshal(spec.Values.Raw, &values); err != nil {
			return nil, fmt.Errorf("spec.values: %w", err)
		}
	}
	if _, found := values["migrator"]; found {
		return nil, errors.New("spec.values.migrator: the operator cannot install a migrator, which needs permissions that the operator " +
			"does not have: install the chart with migrator.enabled=true and migrator.only=true for the time of the migration")
	}
	for _, key := range []string{"extraObjects", "fullnameOverride", "namespaceOverride"} {
		if _, found := values[key]; found {
			return nil, fmt.Errorf("spec.values.%s: the operator creates only the objects of a provider process, under their usual names "+
				"and in its own namespace: remove this value, or install the chart without the operator", key)
		}
	}
	set := func(value any, path ...string) error {
		if err := unstructured.SetNestedField(values, value, path...); err != nil {
			return fmt.Errorf("spec.values.%s: %w", strings.Join(path, "."), err)
		}
		return nil
	}
	fields := []struct {
		value any
		path  []string
	}{
		{of, []string{"provider", "name"}},
		{int64(provider.ReplicasOrDefault()), []string{"replicas"}},
		{spec.Image.Registry, []string{"image", "registry"}},
		{spec.Image.Repository, []string{"image", "repository"}},
		{spec.Image.Tag, []string{"image", "tag"}},
		{spec.Image.Digest, []string{"image", "digest"}},
		{string(spec.Image.PullPolicy), []string{"image", "pullPolicy"}},
		{pullSecrets(spec.Image.PullSecrets), []string{"imagePullSecrets"}},
		{kubeconfig(spec.Control.KubeconfigSecretRef), []string{"control", "kubeconfigSecret"}},
		{kubeconfig(spec.Target.KubeconfigSecretRef), []string{"target", "kubeconfigSecret"}},
		{spec.WatchNamespace, []string{"watchNamespace"}},
		{anyOf(spec.ExtraArgs), []string{"extraArgs"}},
	}
	for _, f := range fields {
		if isUnset(f.value) {
			continue
		}
		if err := set(f.value, f.path...); err != nil {
			return nil, err
		}
	}
	if spec.Target.None {
		if err := set(true, "target", "none"); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// isUnset reports whether a field of the spec is empty, so that the default of the chart applies.
func isUnset(value any) bool {
	switch v := value.(type) {
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

func pullSecrets(refs []v1beta1.LocalRef) []any {
	var list []any
	for _, ref := range refs {
		list = append(list, map[string]any{"name": ref.Name})
	}
	return list
}

func kubeconfig(ref *v1beta1.KubeconfigRef) map[string]any {
	if ref == nil {
		return nil
	}
	return map[string]any{"name": ref.Name, "key": ref.KeyOrDefault()}
}

func anyOf(texts []string) []any {
	var list []any
	for _, text := range texts {
		list = append(list, text)
	}
	return list
}

// stamp returns a copy of a rendered object with an owner reference and a hash of its content.
func stamp(rendered *unstructured.Unstructured, provider *v1beta1.Provider) (*unstructured.Unstructured, error) {
	object := rendered.DeepCopy()
	labels := map[string]string{}
	maps.Copy(labels, object.GetLabels())
	labels[v1beta1.LabelInstalledBy] = provider.Name
	labels[managedByLabel] = Name
	object.SetLabels(labels)
	isController := true
	object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1beta1.GroupVersion.String(), Kind: "Provider", Name: provider.Name, UID: provider.UID,
		Controller: &isController,
	}})
	unstructured.RemoveNestedField(object.Object, "status")
	unstructured.RemoveNestedField(object.Object, "metadata", "creationTimestamp")
	if object.GetKind() == "Deployment" {
		// Pod events report a stuck rollout. This label selects the pods.
		if err := unstructured.SetNestedField(object.Object, provider.Name, "spec", "template", "metadata", "labels",
			v1beta1.LabelInstalledBy); err != nil {
			return nil, fmt.Errorf("label the pods of Deployment %s: %w", object.GetName(), err)
		}
	}
	content, err := json.Marshal(object.Object)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	sum := sha256.Sum256(content)
	annotations := map[string]string{}
	maps.Copy(annotations, object.GetAnnotations())
	annotations[v1beta1.AnnotationAppliedHash] = hex.EncodeToString(sum[:8])
	object.SetAnnotations(annotations)
	return object, nil
}
