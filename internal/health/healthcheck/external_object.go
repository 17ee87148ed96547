package healthcheck

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// Types of conditions that an operator sets on a remediation, according to the contract of Medik8s.
const (
	conditionSucceeded     = "Succeeded"
	conditionNodeDeletions = "PermanentNodeDeletionExpected"
)

// RemediationMark names the machine of a remediation and the installation that created the remediation.
type RemediationMark struct {
	ClusterID string    `json:"cluster"`
	Namespace string    `json:"namespace"`
	Machine   string    `json:"machine"`
	NodeUID   types.UID `json:"nodeUID"`
}

// Remediation is an object that the manager has created in the target cluster, so that another operator remediates a
// machine.
type Remediation struct {
	Kind            schema.GroupVersionKind
	Namespace, Name string
	UID             types.UID
	CreationTime    time.Time
	// MachineUID is the UID of the Machine. Mark contains the rest of what the manager knew when it created the object.
	MachineUID types.UID
	Mark       RemediationMark
	// Template is the name of the template, in the same namespace.
	Template   string
	IsDeleting bool
	// IsTimedOut means that the operator was told that the timeout is over.
	IsTimedOut bool
	// HasFailed means that the operator has given up. FailureReason is the reason that the operator states.
	HasFailed     bool
	FailureReason string
	// HasDeletedNode means that the operator was successful by deleting the Node permanently.
	HasDeletedNode bool
}

// String returns a text such as SelfNodeRemediation medik8s/worker-1.
func (r Remediation) String() string {
	return fmt.Sprintf("%s %s/%s", r.Kind.Kind, r.Namespace, r.Name)
}

// signal identifies the remediation for the measurement of its timeout.
func (r Remediation) signal() Signal {
	return Signal{UID: r.UID, Type: r.Kind.Kind, StartTime: r.CreationTime}
}

// comesFrom reports whether a remediation was created from a template.
func (r Remediation) comesFrom(t v1beta1.RemediationTemplateReference) bool {
	return r.Kind.GroupKind() == t.RemediationKind().GroupKind() && r.Namespace == t.Namespace && r.Template == t.Name
}

// ParseRemediation reads a remediation. It returns false if no manager created the object.
func ParseRemediation(o *unstructured.Unstructured) (Remediation, bool) {
	annotations := o.GetAnnotations()
	r := Remediation{
		Kind: o.GroupVersionKind(), Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
		CreationTime: o.GetCreationTimestamp().Time, IsDeleting: o.GetDeletionTimestamp() != nil,
		MachineUID: types.UID(o.GetLabels()[v1beta1.RemediationLabelMachineUID]),
		Template:   annotations[v1beta1.RemediationAnnotationTemplateName],
		IsTimedOut: has(annotations, v1beta1.RemediationAnnotationTimedOut),
	}
	err := json.Unmarshal([]byte(annotations[v1beta1.RemediationAnnotation]), &r.Mark)
	if err != nil || r.MachineUID == "" || r.Mark.ClusterID == "" || r.Mark.Machine == "" {
		return Remediation{}, false
	}
	succeeded := statusCondition(o, conditionSucceeded)
	r.HasFailed, r.FailureReason = succeeded.Status == metav1.ConditionFalse, succeeded.Reason
	r.HasDeletedNode = succeeded.Status == metav1.ConditionTrue &&
		statusCondition(o, conditionNodeDeletions).Status == metav1.ConditionTrue
	return r, true
}

// statusCondition returns a condition of an object of another operator, or an empty condition.
func statusCondition(o *unstructured.Unstructured, kind string) metav1.Condition {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range list {
		c, _ := item.(map[string]any)
		if name, _ := c["type"].(string); name != kind {
			continue
		}
		status, _ := c["status"].(string)
		reason, _ := c["reason"].(string)
		return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason}
	}
	return metav1.Condition{}
}

// newRemediation creates a remediation of a Node from a template, as the Node Health Check operator of Medik8s does.
// It returns false if the template is invalid.
//
// The object has no owner references. Its Machine is often in another cluster, and operators of Medik8s take an
// owner of the kind Machine for a Machine of OpenShift. With the Node as the owner, the object would be deleted
// together with the Node, before the remediation has ended.
func newRemediation(template *unstructured.Unstructured, t v1beta1.RemediationTemplateReference, m *v1beta1.Machine,
	node *corev1.Node, clusterID string) (*unstructured.Unstructured, bool) {
	spec, found, err := unstructured.NestedMap(template.Object, "spec", "template", "spec")
	if !found || err != nil {
		return nil, false
	}
	mark, err := json.Marshal(RemediationMark{ClusterID: clusterID, Namespace: m.Namespace, Machine: m.Name,
		NodeUID: node.UID})
	if err != nil {
		return nil, false
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(t.RemediationKind())
	o.SetNamespace(t.Namespace)
	o.SetName(node.Name)
	o.SetLabels(map[string]string{v1beta1.RemediationLabelMachineUID: string(m.UID)})
	o.SetAnnotations(map[string]string{
		v1beta1.RemediationAnnotation:             string(mark),
		v1beta1.RemediationAnnotationNodeName:     node.Name,
		v1beta1.RemediationAnnotationTemplateName: t.Name,
	})
	return o, true
}
