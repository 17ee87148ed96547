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

// ManagerWebhook returns the webhook configuration of machinist-manager, reached through its Service.
func ManagerWebhook() *admissionv1.ValidatingWebhookConfiguration { return webhook("manager", "") }

// ProviderWebhook returns the webhook configuration of a provider, reached through its Service.
func ProviderWebhook(provider string) *admissionv1.ValidatingWebhookConfiguration {
	return webhook("provider", provider)
}

// At returns a copy of a webhook configuration that reaches the process at a URL such as https://localhost:9443 instead of
// through its Service: for processes that run outside of the cluster.
func At(c *admissionv1.ValidatingWebhookConfiguration, url string) *admissionv1.ValidatingWebhookConfiguration {
	c = c.DeepCopy()
	for i := range c.Webhooks {
		to := &c.Webhooks[i].ClientConfig
		to.URL, to.Service = ptr.To(strings.TrimSuffix(url, "/")+*to.Service.Path), nil
	}
	return c
}

func webhook(file, provider string) *admissionv1.ValidatingWebhookConfiguration {
	text := must(fs.ReadFile(webhooks, "webhook/"+file+".yaml"))
	c := &admissionv1.ValidatingWebhookConfiguration{}
	err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(string(text), "PROVIDER", provider)), c)
	return must(c, err)
}
