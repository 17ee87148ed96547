// Package nodemark has the mark on a Node that identifies its instance, and decides by it which Machine a Node belongs
// to.
package nodemark

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Mark identifies the instance of a Node, and the installation that it belongs to. It is the value of
// NodeAnnotationInstance.
type Mark struct {
	// ClusterID identifies the installation that created the instance, and Provider the provider.
	ClusterID string `json:"cluster"`
	Provider  string `json:"provider"`
	// Class is the name of the class, in the namespace of the Machine, "" for a Machine without one.
	Class string `json:"class,omitempty"`
	// ProviderID is the provider ID of the instance, and Scope the scope in which the provider finds it.
	ProviderID string `json:"id"`
	Scope      string `json:"scope,omitempty"`
}

// Of returns the mark of a Machine's Node.
func Of(m *v1beta1.Machine, clusterID, provider string) Mark {
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

// Parse reads the value of the annotation. ok is false if it identifies no instance.
func Parse(text string) (mark Mark, ok bool) {
	err := json.Unmarshal([]byte(text), &mark)
	return mark, err == nil && mark.ClusterID != "" && mark.Provider != "" && mark.ProviderID != ""
}

// Proves reports whether the provider ID of a Node proves that the Node is the Machine's.
//
// The provider ID of the instance, in the Machine's specification, is a proof. The one that the class sets for its Nodes
// is recorded only in the status. Any client that may write the status could name the provider ID of another Node there.
// So that ID proves something only together with the mark, which only clients that may write the Node can set.
func Proves(m *v1beta1.Machine, node *corev1.Node) bool {
	switch node.Spec.ProviderID {
	case "":
		return false
	case m.Spec.ProviderID:
		return true
	case m.NodeProviderID():
		mark, ok := Parse(node.Annotations[v1beta1.NodeAnnotationInstance])
		return ok && mark.ProviderID == m.Spec.ProviderID
	}
	return false
}
