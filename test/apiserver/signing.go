package apiserver

import (
	"maps"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// signingStrategy handles writes of CertificateSigningRequests. The real server sets the requester to the identity of
// the caller. In this package, the caller or a Front sets the requester.
type signingStrategy struct{ baseStrategy }

func (signingStrategy) allowsUnconditionalUpdate() bool { return true }

func (signingStrategy) hasSubresource(sub string) bool { return sub == "status" || sub == "approval" }

func (signingStrategy) fields(o client.Object) fields.Set {
	return fields.Set{"spec.signerName": o.(*certificatesv1.CertificateSigningRequest).Spec.SignerName}
}

func (signingStrategy) create(_ metav1.Time, _ *metav1.ObjectMeta, body map[string]any) (map[string]any,
	field.ErrorList) {
	delete(body, "status")
	return body, nil
}

// update restricts a write to the fields that its subresource may change. A write to the object may change only
// metadata. A write to the subresource approval may change only conditions. Writes to status keep the approval or
// denial.
func (signingStrategy) update(now metav1.Time, sub string, old *record, meta *metav1.ObjectMeta,
	body map[string]any) (*metav1.ObjectMeta, map[string]any, field.ErrorList) {
	status, _ := body["status"].(map[string]any)
	before, _ := old.body["status"].(map[string]any)
	body = withField(body, "spec", old.body)
	if sub == "" {
		return meta, withField(body, "status", old.body), nil
	}
	conditions := withTimes(now, status["conditions"], before["conditions"])
	if sub == "approval" {
		status = before
	}
	status = maps.Clone(status)
	if status == nil {
		status = map[string]any{}
	}
	if len(conditions) > 0 {
		status["conditions"] = conditions
	} else {
		delete(status, "conditions")
	}
	body = maps.Clone(body)
	body["status"] = status
	var errs field.ErrorList
	path := field.NewPath("status", "conditions")
	for _, decision := range []string{string(certificatesv1.CertificateApproved),
		string(certificatesv1.CertificateDenied)} {
		existed, exists := hasCondition(before["conditions"], decision), hasCondition(conditions, decision)
		switch {
		case existed && !exists:
			errs = append(errs, field.Forbidden(path, "updates may not remove a condition of type "+decision))
		case !existed && exists && sub == "status":
			errs = append(errs, field.Forbidden(path, "updates may not add a condition of type "+decision))
		}
	}
	for i, c := range conditions {
		c, _ := c.(map[string]any)
		at := path.Index(i)
		switch kind, status := textAt(c, "type"), textAt(c, "status"); {
		case kind == "":
			errs = append(errs, field.Required(at.Child("type"), ""))
		case status == "":
			errs = append(errs, field.Required(at.Child("status"), ""))
		case status != "True" && slices.Contains(decisions, kind):
			errs = append(errs, field.NotSupported(at.Child("status"), status, []string{"True"}))
		}
	}
	if hasCondition(conditions, string(certificatesv1.CertificateApproved)) &&
		hasCondition(conditions, string(certificatesv1.CertificateDenied)) {
		errs = append(errs, field.Invalid(path, conditions, "Approved and Denied conditions are mutually exclusive"))
	}
	return meta, body, errs
}

var decisions = []string{string(certificatesv1.CertificateApproved), string(certificatesv1.CertificateDenied),
	string(certificatesv1.CertificateFailed)}

func hasCondition(conditions any, kind string) bool { return condition(conditions, kind) != nil }

func condition(conditions any, kind string) map[string]any {
	list, _ := conditions.([]any)
	for _, c := range list {
		if c, ok := c.(map[string]any); ok && c["type"] == kind {
			return c
		}
	}
	return nil
}

func withTimes(now metav1.Time, conditions, before any) []any {
	list, _ := conditions.([]any)
	result := make([]any, len(list))
	for i, c := range list {
		given, _ := c.(map[string]any)
		c := maps.Clone(given)
		at := now.UTC().Format(time.RFC3339)
		if c["lastUpdateTime"] == nil {
			c["lastUpdateTime"] = at
		}
		if c["lastTransitionTime"] == nil {
			c["lastTransitionTime"] = at
			if old := condition(before, textAt(c, "type")); old != nil && old["status"] == c["status"] &&
				old["lastTransitionTime"] != nil {
				c["lastTransitionTime"] = old["lastTransitionTime"]
			}
		}
		result[i] = c
	}
	return result
}
