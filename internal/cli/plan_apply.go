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

// applied returns a deployment as it is, nil if there is none, and as it would be if somebody applied the document: the
// API server does it in a dry run, so that defaults are filled in and what it would refuse is refused.
func (c *Cluster) applied(ctx context.Context, doc document) (before, after *v1beta1.MachineDeployment, err error) {
	live := &v1beta1.MachineDeployment{}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: doc.namespace, Name: doc.name}, live); {
	case apierrors.IsNotFound(err) && !isUnknownResource(err):
		after, err = c.created(ctx, doc)
		return nil, after, err
	case err != nil:
		return nil, nil, c.Explain(err)
	}
	// Reading gives no kind.
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
			fmt.Errorf("the deployment has changed since the file was read from the cluster, or while this was checked: take metadata.resourceVersion out of the file, and try again (%w)", err)
	case err != nil:
		return nil, nil, c.refusedDryRun(doc, err)
	}
	return live, after, nil
}

// created returns a new deployment as it would be.
func (c *Cluster) created(ctx context.Context, doc document) (*v1beta1.MachineDeployment, error) {
	// As it is written, so that the API server sees every mistake in it.
	asked := &unstructured.Unstructured{}
	if err := json.Unmarshal(doc.raw, &asked.Object); err != nil {
		return nil, err
	}
	asked.SetNamespace(doc.namespace)
	err := c.Create(ctx, asked, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
	if err != nil {
		return nil, c.refusedDryRun(doc, err)
	}
	after := &v1beta1.MachineDeployment{}
	return after, runtime.DefaultUnstructuredConverter.FromUnstructured(asked.Object, after)
}

// refusedDryRun explains why the API server made no dry run. Forbidden is what policies and quotas refuse, too.
func (c *Cluster) refusedDryRun(doc document, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("the API server refuses the dry run from which a plan is made: %w", c.Explain(err))
	}
	return doc.explain(c.Explain(err))
}

// kubectlManager is the name under which kubectl applies on the server's side.
const kubectlManager = "kubectl"

// patchFor returns the patch that kubectl apply would send: one of its own making from what was applied before, what
// is there and what is wanted, or, for what is applied on the server's side already, the document itself.
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
		return "", nil, fmt.Errorf("compare it with what is there: %w", err)
	}
	return types.MergePatchType, patch, nil
}
