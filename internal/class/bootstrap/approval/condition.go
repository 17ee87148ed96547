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

// setCondition sets CertificateApproved to False for a pending request. The message omits the name of the request. A
// kubelet sends a new request every 15 minutes, and each name would cause a write.
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

// clearCondition updates the condition after a request of the Machine was decided or deleted. If no process was running
// at that time, the condition stays until the kubelet sends another request.
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

// applyRejections sets the condition to the first rejected request of the Machine, or removes it if there is none. The
// order is fixed, so that requests with different reasons do not overwrite each other's condition.
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

// patchCondition writes CertificateApproved to the Machine if a live read shows another value of the condition.
func (r *Reconciler) patchCondition(ctx context.Context, key types.NamespacedName, uid types.UID) error {
	m := &v1beta1.Machine{}
	if err := r.LiveClient.Get(ctx, key, m); err != nil || m.UID != uid {
		return client.IgnoreNotFound(err)
	}
	changed := m.DeepCopy()
	if !r.applyRejections(changed) {
		return nil
	}
	patch := client.MergeFromWithOptions(m, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.LiveClient.Status().Patch(ctx, changed, patch)); err != nil {
		return fmt.Errorf("write condition %s of machine %s: %w", v1beta1.ConditionCertificateApproved, key, err)
	}
	return nil
}
