package machinestate

import (
	"encoding/json"
	"fmt"

	"machinist.dev/machinist/api/v1beta1"
)

// InstanceMark identifies the instance of a Node, and the installation that it belongs to. It is the value of
// NodeAnnotationInstance.
type InstanceMark struct {
	// ClusterID identifies the installation that created the instance, and Provider the provider.
	ClusterID string `json:"cluster"`
	Provider  string `json:"provider"`
	// Class is the name of the class, in the namespace of the Machine, or "" for a Machine without a class.
	Class string `json:"class,omitempty"`
	// ProviderID is the provider ID of the instance, and Scope the scope in which the provider finds it.
	ProviderID string `json:"id"`
	Scope      string `json:"scope,omitempty"`
}

// InstanceMarkOf returns the mark of a Machine's Node.
func InstanceMarkOf(m *v1beta1.Machine, clusterID, provider string) InstanceMark {
	mark := InstanceMark{ClusterID: clusterID, Provider: provider, ProviderID: m.Spec.ProviderID}
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
func (i InstanceMark) String() string {
	text, err := json.Marshal(i)
	if err != nil {
		panic(fmt.Sprintf("encode a struct of strings: %v", err)) // Not reachable.
	}
	return string(text)
}

// ParseInstanceMark reads the value of the annotation. ok is false if it identifies no instance.
func ParseInstanceMark(text string) (mark InstanceMark, ok bool) {
	err := json.Unmarshal([]byte(text), &mark)
	return mark, err == nil && mark.ClusterID != "" && mark.Provider != "" && mark.ProviderID != ""
}
