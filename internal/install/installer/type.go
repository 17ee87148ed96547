package installer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Types returns the types that come with Machinist, in order. Each is also the scheme of its provider IDs.
func Types() []string { return []string{"azure", "libvirt", "openstack", "sim"} }

// processName returns the name of the process of a type.
func processName(of string) string { return "machinist-provider-" + of }

// resolveType finds the type of a Provider and records it in status. It returns what is in the way, if anything.
func (r *Reconciler) resolveType(ctx context.Context, provider *v1beta1.Provider,
	status *v1beta1.ProviderStatus) (*trouble, error) {
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

// detectType finds the type from the Nodes. A type of which something is installed stays.
func (r *Reconciler) detectType(ctx context.Context, status *v1beta1.ProviderStatus) (*trouble, error) {
	if status.Detected != nil && len(status.Installed) > 0 {
		status.Type = status.Detected.Type
		return nil, nil
	}
	nodes := &corev1.NodeList{}
	if err := r.Live.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("list the Nodes, from which the type is detected: %w", err)
	}
	found := detect(nodes.Items)
	if t := found.trouble(); t != nil {
		status.Type, status.Detected = "", nil
		return t, nil
	}
	status.Detected = found.platform()
	status.Type = status.Detected.Type
	return nil, nil
}

// unknownType returns what is in the way of a type that does not come with Machinist and has no image.
func unknownType(provider *v1beta1.Provider, status *v1beta1.ProviderStatus) *trouble {
	if slices.Contains(Types(), status.Type) || provider.Spec.Image.Repository != "" {
		return nil
	}
	subject := fmt.Sprintf("spec.type %q is not a provider that comes with Machinist", status.Type)
	if status.Detected != nil {
		subject = fmt.Sprintf("%s, and no such provider comes with Machinist", detectedMessage(status.Detected))
	}
	return &trouble{reason: v1beta1.ReasonUnknownType, message: fmt.Sprintf(
		"%s. Known are %s. For a provider of your own set spec.image.repository.", subject, strings.Join(Types(), ", "))}
}

// duplicateType returns what is in the way if another Provider has the type: one that is installed already, or else an
// older one.
func duplicateType(provider *v1beta1.Provider, of string, all []v1beta1.Provider) *trouble {
	for i := range all {
		other := &all[i]
		if other.UID != provider.UID && typeOf(other) == of && precedes(other, provider) {
			return &trouble{reason: v1beta1.ReasonDuplicateType, message: fmt.Sprintf(
				"Provider %s is of type %s too and precedes this one: one process serves a type. Delete one of the two.",
				other.Name, of)}
		}
	}
	return nil
}

// typeOf returns the type that a Provider has or asks for, Auto if it is not detected yet.
func typeOf(p *v1beta1.Provider) string {
	if p.Spec.Type == v1beta1.ProviderTypeAuto && p.Status.Type != "" {
		return p.Status.Type
	}
	return p.Spec.Type
}

// precedes says whether a has the type that both ask for.
func precedes(a, b *v1beta1.Provider) bool {
	if first, second := len(a.Status.Installed) > 0, len(b.Status.Installed) > 0; first != second {
		return first
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}
