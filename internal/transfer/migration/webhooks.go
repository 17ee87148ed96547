package migration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

// webhooks holds the admission webhooks whose rules name the old group. The server of such a webhook may have been
// stopped together with the old system. If the failurePolicy of the webhook is Fail, the API server then rejects the
// deletion of old objects.
type webhooks struct {
	own    []client.Object // rules name no other group
	shared []client.Object // rules also name other groups
}

// readWebhooks returns the webhooks for the old group. readWebhooks skips webhooks for all API groups, because such
// webhooks do not belong to the old system, and their servers keep running.
func readWebhooks(ctx context.Context, reader client.Reader, group string) (webhooks, error) {
	var found webhooks
	add := func(object client.Object, rules []admissionv1.RuleWithOperations) {
		named, others := false, false
		for _, rule := range rules {
			for _, g := range rule.APIGroups {
				named, others = named || g == group, others || g != group
			}
		}
		switch {
		case named && others:
			found.shared = append(found.shared, object)
		case named:
			found.own = append(found.own, object)
		}
	}
	validating := &admissionv1.ValidatingWebhookConfigurationList{}
	if err := reader.List(ctx, validating); err != nil {
		return webhooks{}, fmt.Errorf("list validating webhooks: %w", err)
	}
	for i := range validating.Items {
		var rules []admissionv1.RuleWithOperations
		for _, w := range validating.Items[i].Webhooks {
			rules = append(rules, w.Rules...)
		}
		add(&validating.Items[i], rules)
	}
	mutating := &admissionv1.MutatingWebhookConfigurationList{}
	if err := reader.List(ctx, mutating); err != nil {
		return webhooks{}, fmt.Errorf("list mutating webhooks: %w", err)
	}
	for i := range mutating.Items {
		var rules []admissionv1.RuleWithOperations
		for _, w := range mutating.Items[i].Webhooks {
			rules = append(rules, w.Rules...)
		}
		add(&mutating.Items[i], rules)
	}
	return found, nil
}

func (w webhooks) report(all *findings) {
	for _, object := range w.own {
		all.addf(provider.FindingNote, CodeWebhookRemoved, kindOf(object)+"/"+object.GetName(), "webhooks",
			"The rules of this webhook configuration are for the old group only. The migrator deletes it before the old "+
				"objects, unless some of them stay.")
	}
	for _, object := range w.shared {
		all.addf(provider.FindingNote, CodeWebhookStays, kindOf(object)+"/"+object.GetName(), "webhooks",
			"The rules of this webhook configuration are for the old group and for other groups, so the configuration "+
				"stays. Keep its webhook server running until the migration is completed, or remove the old group from the "+
				"rules: if the webhook fails, old objects cannot be removed.")
	}
}

// removeWebhooks deletes the webhooks that are only for the old group, and reports whether there were any. If any old
// object stays, all webhooks stay.
func (p *pass) removeWebhooks(ctx context.Context, scope map[source.Role][]*unstructured.Unstructured) (bool, error) {
	hooks, err := readWebhooks(ctx, p.Control, p.system.Group())
	if err != nil || len(hooks.own) == 0 || p.system.Group() == provider.SourceClusterAPI {
		return false, err // The webhooks of Cluster API are also for its Clusters, which stay.
	}
	removable := 0
	for _, objects := range scope {
		removable += len(objects)
	}
	existing := 0
	err = eachOld(ctx, p.Control, p.system, "", true, func(source.Role, *unstructured.Unstructured) { existing++ })
	if err != nil {
		return false, err
	}
	if existing > removable {
		return false, nil
	}
	for _, object := range hooks.own {
		if err := p.Control.Delete(ctx, object, preconditionsFor(object)); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("remove the old system's %s %s: %w", kindOf(object), object.GetName(), err)
		}
	}
	return true, nil
}

// remedies contains advice for errors that do not say what an administrator can do.
var remedies = []struct{ text, remedy string }{
	{"is forbidden: User ", "If the request is in a namespace, add the namespace to the value migrator.namespaces of the " +
		"chart machinist-provider."},
	{"failed calling webhook", "Start the webhook server again, or remove the webhook from its configuration."},
	{"conversion webhook", "Start the conversion webhook server again: until then, old objects cannot be read. If it " +
		"is gone for good, set spec.conversion.strategy of the CustomResourceDefinition to None."},
}

// withRemedy returns the message of an error with matching advice.
func withRemedy(err error) string {
	text := err.Error()
	i := slices.IndexFunc(remedies, func(r struct{ text, remedy string }) bool { return strings.Contains(text, r.text) })
	if i < 0 {
		return text
	}
	return strings.TrimRight(text, ".") + ". " + remedies[i].remedy
}
