// Package nodemark contains the annotation that identifies the instance of a Node. The annotation proves to which
// Machine the Node belongs.
package nodemark

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Mark identifies the instance of a Node and its installation. It is the value of NodeAnnotationInstance.
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

// Of creates the mark that Machinist writes to the Node of a Machine.
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

// Parse reads the value of the annotation. The result ok is false for an invalid value.
func Parse(text string) (mark Mark, ok bool) {
	err := json.Unmarshal([]byte(text), &mark)
	return mark, err == nil && mark.ClusterID != "" && mark.Provider != "" && mark.ProviderID != ""
}

// Proves reports whether the provider ID of a Node proves that the Node belongs to the Machine.
//
// A Node proves that it belongs to the Machine if its provider ID equals the provider ID in the spec of the Machine. A
// class may define a different provider ID for its Nodes, which the Machine records in its status. Any client that may
// write the status could replace this ID with the ID of another Node. Therefore Proves accepts the ID in the status
// only if the Node also has the mark of the Machine. Only clients that may write the Node can set the mark.
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
