package installer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Types returns the provider types of Machinist, in order. A type is also the scheme of its provider IDs.
func Types() []string { return []string{"azure", "libvirt", "openstack", "sim", "vsphere"} }

func processName(of string) string { return "machinist-provider-" + of }

// resolveType determines the type of a Provider and records it in status. It returns a problem if the type is unknown.
func (r *Reconciler) resolveType(ctx context.Context, provider *v1beta1.Provider,
	status *v1beta1.ProviderStatus) (*problem, error) {
	if provider.Spec.Type == v1beta1.ProviderTypeAuto {
		if t, err := r.detectType(ctx, status); t != nil || err != nil {
			return t, err
		}
	} else {
		status.Type, status.Detected = provider.Spec.Type, nil
	}
	if t := unknownType(provider, status); t != nil {
		return t, nil
	}
	all := &v1beta1.ProviderList{}
	if err := r.Client.List(ctx, all); err != nil {
		return nil, fmt.Errorf("list the Providers: %w", err)
	}
	return duplicateType(provider, status.Type, all.Items), nil
}

// detectType detects the type from the Nodes. If objects of the Provider are already installed, its type does not
// change anymore.
func (r *Reconciler) detectType(ctx context.Context, status *v1beta1.ProviderStatus) (*problem, error) {
	if status.Detected != nil && len(status.Installed) > 0 {
		status.Type = status.Detected.Type
		return nil, nil
	}
	nodes := &corev1.NodeList{}
	if err := r.LiveClient.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("list the Nodes to detect the type: %w", err)
	}
	found := detect(nodes.Items)
	if t := found.problem(); t != nil {
		status.Type, status.Detected = "", nil
		return t, nil
	}
	status.Detected = found.platform()
	status.Type = status.Detected.Type
	return nil, nil
}

// unknownType returns a problem if the type is not one of Types and no image is set.
func unknownType(provider *v1beta1.Provider, status *v1beta1.ProviderStatus) *problem {
	if slices.Contains(Types(), status.Type) || provider.Spec.Image.Repository != "" {
		return nil
	}
	subject := fmt.Sprintf("spec.type %q is not a provider of Machinist", status.Type)
	if status.Detected != nil {
		subject = fmt.Sprintf("%s, and Machinist has no such provider", detectedMessage(status.Detected))
	}
	return &problem{reason: v1beta1.ReasonUnknownType, message: fmt.Sprintf(
		"%s. The providers of Machinist are %s. For any other provider, set spec.image.repository.", subject, strings.Join(Types(), ", "))}
}

// duplicateType returns a problem if another Provider of the same type precedes this one.
func duplicateType(provider *v1beta1.Provider, of string, all []v1beta1.Provider) *problem {
	for i := range all {
		other := &all[i]
		if other.UID != provider.UID && typeOf(other) == of && precedes(other, provider) {
			return &problem{reason: v1beta1.ReasonDuplicateType, message: fmt.Sprintf(
				"Provider %s has the type %s too and precedes this one. Only one process can serve a type. Delete one of the two Providers.",
				other.Name, of)}
		}
	}
	return nil
}

// typeOf returns the resolved or declared type. The type is Auto if the type is not detected yet.
func typeOf(p *v1beta1.Provider) string {
	if p.Spec.Type == v1beta1.ProviderTypeAuto && p.Status.Type != "" {
		return p.Status.Type
	}
	return p.Spec.Type
}

// precedes compares two Providers of the same type, of which only one is installed. The function returns true if the
// first Provider is installed. A Provider with installed objects takes precedence. If both or neither have installed
// objects, the older Provider takes precedence.
func precedes(a, b *v1beta1.Provider) bool {
	if first, second := len(a.Status.Installed) > 0, len(b.Status.Installed) > 0; first != second {
		return first
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}
