package installer

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

func providerOf(name, of string, age time.Duration) v1beta1.Provider {
	p := v1beta1.Provider{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name),
		CreationTimestamp: metav1.NewTime(time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC).Add(-age))}}
	p.Spec.Type = of
	return p
}

// Rule: unknown-type-names-known-ones.
func TestUnknownTypeNeedsAnImage(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*v1beta1.Provider)
		message string
	}{
		"azure":                  {func(p *v1beta1.Provider) { p.Status.Type = "azure" }, ""},
		"a typo":                 {func(p *v1beta1.Provider) { p.Status.Type = "azur" }, `spec.type "azur" is not a provider of Machinist. The providers of Machinist are azure, libvirt, openstack, sim, vsphere.`},
		"a third-party provider": {func(p *v1beta1.Provider) { p.Status.Type, p.Spec.Image.Repository = "acme", "acme/provider" }, ""},
		"a typo with a registry": {func(p *v1beta1.Provider) {
			p.Status.Type, p.Spec.Image.Registry = "azur", "registry.example.com"
		}, "The providers of Machinist are azure, libvirt, openstack, sim, vsphere."},
		"a detected type": {func(p *v1beta1.Provider) {
			p.Status.Type = "aws"
			p.Status.Detected = &v1beta1.DetectedPlatform{Type: "aws", Nodes: 5, TotalNodes: 6}
		}, "Detected aws from 5 of 6 Nodes, and Machinist has no such provider."},
	} {
		t.Run(name, func(t *testing.T) {
			p := &v1beta1.Provider{}
			test.change(p)
			found := unknownType(p, &p.Status)
			if (found == nil) != (test.message == "") ||
				found != nil && (found.reason != v1beta1.ReasonUnknownType || !strings.Contains(found.message, test.message)) {
				t.Errorf("got %+v, want %q", found, test.message)
			}
		})
	}
}

// Rule: one-provider-of-a-type.
func TestOlderProviderHasTheType(t *testing.T) {
	older, younger := providerOf("older", "azure", time.Hour), providerOf("younger", "azure", time.Minute)
	detected := providerOf("detected", v1beta1.ProviderTypeAuto, 2*time.Hour)
	detected.Status.Type = "azure"
	installed := providerOf("installed", "azure", time.Second)
	installed.Status.Installed = []v1beta1.InstalledObject{{Kind: "Deployment"}}
	twin := providerOf("twin", "azure", time.Hour)
	for name, test := range map[string]struct {
		of     v1beta1.Provider
		all    []v1beta1.Provider
		yields string // name of the Provider that precedes it
	}{
		"alone":                 {older, []v1beta1.Provider{older}, ""},
		"the older":             {older, []v1beta1.Provider{older, younger}, ""},
		"the younger":           {younger, []v1beta1.Provider{older, younger}, "older"},
		"of another type":       {younger, []v1beta1.Provider{providerOf("sim", "sim", time.Hour), younger}, ""},
		"after a detected one":  {older, []v1beta1.Provider{older, detected}, "detected"},
		"installed first":       {older, []v1beta1.Provider{older, installed}, "installed"},
		"created in one second": {twin, []v1beta1.Provider{older, twin}, "older"},
		"not detected yet":      {younger, []v1beta1.Provider{providerOf("auto", v1beta1.ProviderTypeAuto, time.Hour), younger}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := duplicateType(&test.of, "azure", test.all)
			if (found == nil) != (test.yields == "") ||
				found != nil && !strings.HasPrefix(found.message, "Provider "+test.yields+" has the type azure too") {
				t.Errorf("got %+v, want it to yield to %q", found, test.yields)
			}
		})
	}
}
