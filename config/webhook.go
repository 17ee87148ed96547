package config

import (
	"embed"
	"io/fs"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

//go:embed webhook/*.yaml
var webhooks embed.FS

// placeholder stands for the provider's name in its manifest.
const placeholder = "PROVIDER"

// ManagerWebhook returns the webhook configuration of machinist-manager, reached through its Service.
func ManagerWebhook() *admissionv1.ValidatingWebhookConfiguration { return webhook("manager", "") }

// ProviderWebhook returns the webhook configuration of a provider, reached through its Service.
func ProviderWebhook(provider string) *admissionv1.ValidatingWebhookConfiguration {
	return webhook("provider", provider)
}

// At returns a copy of a webhook configuration that reaches the process at a URL such as https://localhost:9443
// instead of through its Service: for processes that run outside of the cluster.
func At(c *admissionv1.ValidatingWebhookConfiguration, url string) *admissionv1.ValidatingWebhookConfiguration {
	c = c.DeepCopy()
	for i := range c.Webhooks {
		to := &c.Webhooks[i].ClientConfig
		to.URL, to.Service = ptr.To(strings.TrimSuffix(url, "/")+*to.Service.Path), nil
	}
	return c
}

// webhook returns the first object of a file; the second is the Service.
func webhook(file, provider string) *admissionv1.ValidatingWebhookConfiguration {
	text := strings.ReplaceAll(string(must(fs.ReadFile(webhooks, "webhook/"+file+".yaml"))), placeholder, provider)
	text, _, _ = strings.Cut(text, "\n---\n")
	c := &admissionv1.ValidatingWebhookConfiguration{}
	return must(c, yaml.UnmarshalStrict([]byte(text), c))
}
