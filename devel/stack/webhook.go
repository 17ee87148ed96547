package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/internal/install/manifests"
)

// webhooks reports whether the two processes serve their webhooks. Processes that are started by hand or for a single
// namespace have no webhook configuration.
func (s *Stack) webhooks() bool { return !s.options.PrepareOnly && s.options.Namespace == "" }

// WebhookArgs returns the flags with which a process serves its webhook on a loopback address.
func WebhookArgs(address string) []string {
	return []string{"--webhook-bind-address=" + address, "--webhook-hosts=localhost"}
}

func (s *Stack) addWebhook(p *child.Process) error {
	address, err := controlplane.FreeAddress()
	if err != nil {
		return err
	}
	p.Args = append(WebhookArgs(address), p.Args...)
	if s.options.WebhookProxy != nil {
		address = s.options.WebhookProxy(p.Name, address)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("parse the address of the webhook of %s: %w", p.Name, err)
	}
	s.webhookURLs[p.Name] = "https://localhost:" + port
	return nil
}

// webhookURL returns the URL of a program's webhook, or manifests.WebhookOff if it serves none.
func (s *Stack) webhookURL(program string) string {
	if url := s.webhookURLs[program]; url != "" {
		return url
	}
	return manifests.WebhookOff
}

// awaitWebhooks waits until both webhooks refuse an invalid object. Such a refusal shows that the API server calls
// and trusts the webhooks.
func (s *Stack) awaitWebhooks(ctx context.Context) error {
	c, err := s.ControlClient()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	meta := metav1.ObjectMeta{Namespace: SystemNamespace, Name: "probe"}
	for _, probe := range []struct {
		p       *child.Process
		webhook string
		object  client.Object
	}{
		{s.Manager, "core.machinist.dev", &v1beta1.Machine{ObjectMeta: meta, Spec: v1beta1.MachineSpec{
			ClassRef: &v1beta1.LocalRef{Name: "probe"},
			Node:     v1beta1.NodeTemplate{Labels: map[string]string{v1beta1.NodeLabelMachine: "probe"}},
		}}},
		{s.Provider, "class." + s.backend.Driver() + ".machinist.dev",
			&v1beta1.MachineClass{ObjectMeta: meta, Spec: v1beta1.MachineClassSpec{
				Provider: s.backend.Driver(), ProviderSpec: &runtime.RawExtension{Raw: []byte("{}")},
			}}},
	} {
		if err := probe.p.Await(ctx, func(ctx context.Context) error {
			switch err := c.Create(ctx, probe.object.DeepCopyObject().(client.Object), client.DryRunAll); {
			case err == nil:
				return errors.New("the API server does not call the webhook yet")
			case apierrors.IsInvalid(err) && strings.Contains(err.Error(), probe.webhook):
				return nil
			default:
				return fmt.Errorf("the webhook does not answer yet: %w", err)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}
