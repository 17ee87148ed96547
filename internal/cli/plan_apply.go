package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// dryRunApply returns a deployment before and after a document is applied. before is nil for a new deployment. The API
// server computes the result in a dry run, so it contains all defaults, and invalid documents are rejected.
func (c *Cluster) dryRunApply(ctx context.Context, doc document) (before, after *v1beta1.MachineDeployment, err error) {
	live := &v1beta1.MachineDeployment{}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: doc.namespace, Name: doc.name}, live); {
	case apierrors.IsNotFound(err) && !isUnknownResource(err):
		after, err = c.dryRunCreate(ctx, doc)
		return nil, after, err
	case err != nil:
		return nil, nil, c.Explain(err)
	}
	// The client does not set the kind of an object that it reads.
	live.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MachineDeployment"))
	kind, data, err := patchFor(live, doc)
	if err != nil {
		return nil, nil, err
	}
	options := []client.PatchOption{client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)}
	if kind == types.ApplyPatchType {
		options = append(options, client.FieldOwner(kubectlManager), client.ForceOwnership)
	}
	after = live.DeepCopy()
	switch err := c.Patch(ctx, after, client.RawPatch(kind, data), options...); {
	case apierrors.IsConflict(err):
		return nil, nil,
			fmt.Errorf("the deployment has changed since the file was read from the cluster, or during this command: remove metadata.resourceVersion from the file and try again (%w)", err)
	case err != nil:
		return nil, nil, c.explainDryRun(doc, err)
	}
	return live, after, nil
}

func (c *Cluster) dryRunCreate(ctx context.Context, doc document) (*v1beta1.MachineDeployment, error) {
	// Send the document unchanged, so that the API server can report all unknown fields.
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(doc.raw, &object.Object); err != nil {
		return nil, err
	}
	object.SetNamespace(doc.namespace)
	err := c.Create(ctx, object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
	if err != nil {
		return nil, c.explainDryRun(doc, err)
	}
	after := &v1beta1.MachineDeployment{}
	return after, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, after)
}

// explainDryRun explains an error of a dry run. Admission policies and quotas also reject requests with Forbidden.
func (c *Cluster) explainDryRun(doc document, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("the API server rejected the dry run that the plan needs: %w", c.Explain(err))
	}
	return doc.explain(c.Explain(err))
}

// kubectlManager is the field manager of "kubectl apply --server-side".
const kubectlManager = "kubectl"

// patchFor returns the patch that "kubectl apply" would send. If kubectl manages the live object with server-side apply
// only, the patch is the document itself. Otherwise the patch is the three-way merge of the last applied document, the
// live object and the new document.
func patchFor(live *v1beta1.MachineDeployment, doc document) (types.PatchType, []byte, error) {
	var wanted map[string]any
	if err := json.Unmarshal(doc.raw, &wanted); err != nil {
		return "", nil, err
	}
	delete(wanted, "status")
	if metadata, ok := wanted["metadata"].(map[string]any); ok {
		metadata["namespace"] = doc.namespace
		delete(metadata, "creationTimestamp")
	}
	modified, err := json.Marshal(wanted)
	if err != nil {
		return "", nil, err
	}
	original, byClient := live.Annotations[corev1.LastAppliedConfigAnnotation]
	byServer := slices.ContainsFunc(live.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Operation == metav1.ManagedFieldsOperationApply && f.Manager == kubectlManager && f.Subresource == ""
	})
	if byServer && !byClient {
		return types.ApplyPatchType, modified, nil
	}
	current, err := json.Marshal(live)
	if err != nil {
		return "", nil, err
	}
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch([]byte(original), modified, current)
	if err != nil {
		return "", nil, fmt.Errorf("compare the document with the live object: %w", err)
	}
	return types.MergePatchType, patch, nil
}
