// Package nodemark contains the annotation that identifies the instance of a Node. The annotation proves to which
// Machine the Node belongs.
package nodemark

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// Mark identifies the instance of a Node and its installation. Mark is the value of NodeAnnotationInstance.
type Mark struct {
	// ClusterID identifies the installation that created the instance. Provider identifies the provider.
	ClusterID string `json:"cluster"`
	Provider  string `json:"provider"`
	// Class is the name of the class, in the namespace of the Machine, or "" for a Machine without a class.
	Class string `json:"class,omitempty"`
	// ProviderID is the provider ID of the instance. Scope is the scope in which the provider finds the instance.
	ProviderID string `json:"id"`
	Scope      string `json:"scope,omitempty"`
}

// New creates the mark that Machinist writes to the Node of a Machine.
func New(m *v1beta1.Machine, clusterID, provider string) Mark {
	mark := Mark{ClusterID: clusterID, Provider: provider, ProviderID: m.Spec.ProviderID}
	if m.Spec.ClassRef != nil {
		mark.Class = m.Spec.ClassRef.Name
	}
	if m.Status.Instance != nil {
		mark.Scope = m.Status.Instance.Scope
	}
	if applied := m.Status.Applied; applied != nil && applied.ClassName != "" {
		mark.Class = applied.ClassName
	}
	return mark
}

// String returns the value of the annotation.
func (i Mark) String() string {
	text, err := json.Marshal(i)
	if err != nil {
		panic(fmt.Sprintf("encode a struct of strings: %v", err)) // Not reachable.
	}
	return string(text)
}

// Parse reads the value of the annotation. The result ok is false for an invalid value.
func Parse(text string) (mark Mark, ok bool) {
	err := json.Unmarshal([]byte(text), &mark)
	return mark, err == nil && mark.ClusterID != "" && mark.Provider != "" && mark.ProviderID != ""
}

// Proves reports whether the annotations of a Node prove that the Node belongs to the Machine.
//
// The provider ID of the Node alone proves nothing, because the author of a Machine can choose any provider ID, and
// any client that may write the status of a Machine can change the provider ID of its Node. Therefore, the mark on
// the Node must identify the instance of the Machine, and the other annotations must name the Machine. Only clients
// that may write the Node can set these annotations.
func Proves(m *v1beta1.Machine, node *corev1.Node) bool {
	id := node.Spec.ProviderID
	if id == "" || id != m.Spec.ProviderID && id != m.NodeProviderID() {
		return false
	}
	mark, ok := Parse(node.Annotations[v1beta1.NodeAnnotationInstance])
	return ok && mark.ProviderID == m.Spec.ProviderID && MachineOf(node) == client.ObjectKeyFromObject(m)
}

// MachineOf returns the namespace and name of the Machine in the annotations of a Node. An annotation that is missing
// leaves its field empty.
func MachineOf(node *corev1.Node) types.NamespacedName {
	return types.NamespacedName{Namespace: node.Annotations[v1beta1.NodeAnnotationClusterNamespace],
		Name: node.Annotations[v1beta1.NodeAnnotationMachine]}
}
