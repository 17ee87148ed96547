package certificate

import (
	"bytes"
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (k *Keeper) kinds() []client.Object {
	kinds := []client.Object{&admissionv1.ValidatingWebhookConfiguration{}}
	if k.Mutating {
		kinds = append(kinds, &admissionv1.MutatingWebhookConfiguration{})
	}
	return kinds
}

// configurations reads the webhook configurations. A missing configuration is an empty object in the result.
func (k *Keeper) configurations(ctx context.Context) ([]client.Object, error) {
	configurations := k.kinds()
	for _, configuration := range configurations {
		if err := k.reader.Get(ctx, client.ObjectKey{Name: k.Configuration},
			configuration); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get the %T %s: %w", configuration, k.Configuration, err)
		}
	}
	return configurations, nil
}

type webhook struct {
	name   string
	client *admissionv1.WebhookClientConfig
}

// webhooksOf returns the webhooks of all configurations, in order. A change of a result changes its configuration.
func webhooksOf(configurations []client.Object) (all []webhook) {
	for _, configuration := range configurations {
		switch c := configuration.(type) {
		case *admissionv1.ValidatingWebhookConfiguration:
			for i := range c.Webhooks {
				all = append(all, webhook{c.Webhooks[i].Name, &c.Webhooks[i].ClientConfig})
			}
		case *admissionv1.MutatingWebhookConfiguration:
			for i := range c.Webhooks {
				all = append(all, webhook{c.Webhooks[i].Name, &c.Webhooks[i].ClientConfig})
			}
		}
	}
	return all
}

// writeBundles patches the configurations whose bundles differ. The bundles must be in the order of webhooksOf.
func (k *Keeper) writeBundles(ctx context.Context, seen []client.Object, bundles [][]byte) error {
	for _, before := range seen {
		after, ok := before.DeepCopyObject().(client.Object)
		if !ok {
			return fmt.Errorf("copy the %T %s", before, k.Configuration)
		}
		changed := false
		for i, w := range webhooksOf([]client.Object{after}) {
			changed = changed || !bytes.Equal(w.client.CABundle, bundles[i])
			w.client.CABundle = bundles[i]
		}
		bundles = bundles[len(webhooksOf([]client.Object{before})):]
		if !changed {
			continue
		}
		k.Log.Info("Writing the authorities of the certificate to the webhook configuration", "configuration", k.Configuration,
			"kind", fmt.Sprintf("%T", before))
		// The patch contains only the bundles. The installer's field manager still owns all other fields.
		patch := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
		if err := ignoreConflict(k.Writer.Patch(ctx, after, patch)); err != nil {
			return fmt.Errorf("write the bundles of the %T %s: %w", before, k.Configuration, err)
		}
	}
	return nil
}
