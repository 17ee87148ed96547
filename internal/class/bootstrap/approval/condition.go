package approval

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// setCondition sets the Machine's condition CertificateApproved to False, because a certificate request is left
// pending. The message of the condition does not contain the name of the request. A kubelet sends a request with a
// new name every 15 minutes. If the message contained the name, each request would cause a write.
func (r *Reconciler) setCondition(ctx context.Context, csr *certificatesv1.CertificateSigningRequest,
	m *v1beta1.Machine, v Decision) error {
	reason, purpose := v1beta1.ReasonClientCertificateNotApproved, "client"
	if csr.Spec.SignerName == certificatesv1.KubeletServingSignerName {
		reason, purpose = v1beta1.ReasonServingCertificateNotApproved, "serving"
	}
	r.state.addRejection(csr.Name, rejection{machine: client.ObjectKeyFromObject(m), uid: m.UID, reason: reason,
		message: fmt.Sprintf("A request of %s for a %s certificate is left pending (%s): %s.", csr.Spec.Username, purpose,
			v.Reason, v.Message)})
	if !r.applyRejections(m.DeepCopy()) {
		return nil
	}
	return r.patchCondition(ctx, client.ObjectKeyFromObject(m), m.UID)
}

// clearCondition updates the condition of a Machine after one of its requests was decided or deleted. If a request
// was decided or deleted while no process was running, the condition stays outdated until the kubelet sends another
// request.
func (r *Reconciler) clearCondition(ctx context.Context, request string) error {
	ended, known := r.state.removeRejection(request)
	if !known {
		return nil
	}
	err := r.patchCondition(ctx, ended.machine, ended.uid)
	if err != nil {
		r.state.addRejection(request, ended) // Keep the rejection for the retry.
	}
	return err
}

// applyRejections sets the condition of the Machine to the reason and message of its first rejected request. If the
// Machine has no rejected requests, applyRejections removes the condition. If there are several, applyRejections
// always chooses the same request. Otherwise, two requests with different reasons would repeatedly overwrite each
// other's condition.
func (r *Reconciler) applyRejections(m *v1beta1.Machine) (changed bool) {
	requests, first := r.state.rejectionsOf(client.ObjectKeyFromObject(m))
	if len(requests) == 0 {
		return meta.RemoveStatusCondition(&m.Status.Conditions, v1beta1.ConditionCertificateApproved)
	}
	return meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: v1beta1.ConditionCertificateApproved, Status: metav1.ConditionFalse, Reason: first.reason,
		Message: first.message, LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	})
}

// patchCondition reads the Machine from the API server, and writes the condition CertificateApproved if it differs.
func (r *Reconciler) patchCondition(ctx context.Context, key types.NamespacedName, uid types.UID) error {
	m := &v1beta1.Machine{}
	if err := r.Live.Get(ctx, key, m); err != nil || m.UID != uid {
		return client.IgnoreNotFound(err)
	}
	changed := m.DeepCopy()
	if !r.applyRejections(changed) {
		return nil
	}
	patch := client.MergeFromWithOptions(m, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.Live.Status().Patch(ctx, changed, patch)); err != nil {
		return fmt.Errorf("write condition %s of machine %s: %w", v1beta1.ConditionCertificateApproved, key, err)
	}
	return nil
}
