package preflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// Cluster makes all checks that need the permissions of an administrator. The checks only read.
type Cluster struct {
	client.Reader
	Discovery discovery.DiscoveryInterface
	Now       func() time.Time
}

// Control checks the control cluster.
func (c Cluster) Control(ctx context.Context) ([]Finding, error) {
	return c.all(ctx, c.version, c.collisions, c.webhooks)
}

// Target checks the target cluster. Use it together with Join.
func (c Cluster) Target(ctx context.Context) ([]Finding, error) {
	return c.all(ctx, c.controlPlane, c.unsignedRequests, c.clusterInfo, c.network, c.webhooks)
}

func (c Cluster) all(ctx context.Context,
	checks ...func(context.Context) ([]Finding, error)) (found []Finding, err error) {
	var errs []error
	for _, check := range checks {
		some, err := check(ctx)
		found, errs = append(found, some...), append(errs, err)
	}
	return found, errors.Join(errs...)
}

func (c Cluster) version(context.Context) ([]Finding, error) {
	info, err := c.Discovery.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("read the version of the API server: %w", err)
	}
	return supported(info.GitVersion), nil
}

// collisions finds other API groups whose kinds have the same names as Machinist's kinds. For a short name such as
// "machines", kubectl may choose the other group.
func (c Cluster) collisions(context.Context) ([]Finding, error) {
	_, lists, err := c.Discovery.ServerGroupsAndResources()
	if err != nil && len(lists) == 0 {
		return nil, fmt.Errorf("list the kinds of the API server: %w", err)
	}
	ours, groups := map[string]bool{}, map[string][]string{}
	for _, list := range lists {
		for _, r := range list.APIResources {
			if group, _, _ := strings.Cut(list.GroupVersion, "/"); group == v1beta1.GroupName {
				ours[r.Name] = true
			}
		}
	}
	for _, list := range lists {
		group, _, _ := strings.Cut(list.GroupVersion, "/")
		for _, r := range list.APIResources {
			if group != v1beta1.GroupName && ours[r.Name] && !strings.Contains(r.Name, "/") &&
				!slices.Contains(groups[group], r.Name) {
				groups[group] = append(groups[group], r.Name)
			}
		}
	}
	var found []Finding
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		names := groups[group]
		slices.Sort(names)
		found = append(found, Finding{Reason: NamesCollide, Warning: true,
			Message: fmt.Sprintf("The API group %s also has the kinds %s.", group, strings.Join(names, ", ")),
			Fix: fmt.Sprintf("Use full names with kubectl, such as %s.%s. A short name may refer to objects of the other system.",
				names[0], v1beta1.GroupName)})
	}
	return found, nil
}

// controlPlane checks the flags of the control plane, if it runs in pods as in kubeadm clusters.
func (c Cluster) controlPlane(ctx context.Context) ([]Finding, error) {
	pods := &corev1.PodList{}
	err := c.List(ctx, pods, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"tier": "control-plane"})
	if err != nil {
		return nil, fmt.Errorf("read the pods of the control plane: %w", err)
	}
	var found []Finding
	for i := range pods.Items {
		flags := flagsOf(&pods.Items[i])
		switch pods.Items[i].Labels["component"] {
		case "kube-apiserver":
			if value, set := flags["enable-bootstrap-token-auth"]; !set || value == "false" {
				found = append(found, bootstrapTokensDisabled())
			}
		case "kube-controller-manager":
			if !signsCertificates(flags) {
				found = append(found, noSigner("kube-controller-manager has no key to sign kubelet certificates, or its "+
					"controller csrsigning is disabled."))
			}
		}
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.Reason, b.Reason) })
	return slices.Compact(found), nil
}

func bootstrapTokensDisabled() Finding {
	return Finding{Reason: BootstrapTokensDisabled,
		Message: "The kube-apiserver does not accept bootstrap tokens, so no machine can join.",
		Fix:     "Start the kube-apiserver with --enable-bootstrap-token-auth."}
}

func noSigner(message string) Finding {
	return Finding{Reason: NoSigner, Message: message,
		Fix: "Start kube-controller-manager with --cluster-signing-cert-file and --cluster-signing-key-file, and keep csrsigning in " +
			"--controllers."}
}

func flagsOf(pod *corev1.Pod) map[string]string {
	flags := map[string]string{}
	for _, arg := range slices.Concat(pod.Spec.Containers[0].Command, pod.Spec.Containers[0].Args) {
		if name, isFlag := strings.CutPrefix(arg, "--"); isFlag {
			name, value, _ := strings.Cut(name, "=")
			flags[name] = value
		}
	}
	return flags
}

// signsCertificates reports whether kube-controller-manager signs kubelet certificates with these flags.
func signsCertificates(flags map[string]string) bool {
	controllers, chosen := flags["controllers"]
	names := strings.Split(controllers, ",")
	on := !chosen || slices.Contains(names, "*") || slices.Contains(names, "csrsigning") ||
		slices.Contains(names, "certificatesigningrequest-signing-controller")
	off := slices.Contains(names, "-csrsigning") || slices.Contains(names, "-certificatesigningrequest-signing-controller")
	return on && !off && (flags["cluster-signing-cert-file"] != "" || flags["cluster-signing-kubelet-client-cert-file"] != "")
}

// unsignedFor is how long an approved request may lack a certificate before the check reports a missing signer.
const unsignedFor = time.Minute

func (c Cluster) unsignedRequests(ctx context.Context) ([]Finding, error) {
	requests := &certificatesv1.CertificateSigningRequestList{}
	if err := c.List(ctx, requests); err != nil {
		return nil, fmt.Errorf("read the CertificateSigningRequests: %w", err)
	}
	for i := range requests.Items {
		r := &requests.Items[i]
		if r.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName &&
			r.Spec.SignerName != certificatesv1.KubeletServingSignerName || len(r.Status.Certificate) > 0 {
			continue
		}
		for _, condition := range r.Status.Conditions {
			if condition.Type == certificatesv1.CertificateApproved && c.Now().Sub(condition.LastUpdateTime.Time) > unsignedFor {
				return []Finding{noSigner(fmt.Sprintf("CertificateSigningRequest %s was approved at %s and has no certificate yet.",
					r.Name, condition.LastUpdateTime.UTC().Format(time.RFC3339)))}, nil
			}
		}
	}
	return nil, nil
}

// clusterInfo checks that the ConfigMap cluster-info exists, which kubeadm join reads first.
func (c Cluster) clusterInfo(ctx context.Context) ([]Finding, error) {
	err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespacePublic, Name: "cluster-info"}, &corev1.ConfigMap{})
	if apierrors.IsNotFound(err) {
		return []Finding{{Reason: NoClusterInfo, Warning: true,
			Message: "The ConfigMap cluster-info does not exist in namespace kube-public. kubeadm join uses it to find the cluster.",
			Fix:     "If user data runs kubeadm join, it must contain a discovery file. Other user data does not need cluster-info."}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the ConfigMap cluster-info: %w", err)
	}
	return nil, nil
}

// plugins are name prefixes of the DaemonSets of well-known network plugins.
var plugins = []string{"antrea-agent", "calico-node", "canal", "cilium", "kindnet", "kube-flannel", "kube-ovn-cni",
	"kube-router", "weave-net"}

func (c Cluster) network(ctx context.Context) ([]Finding, error) {
	sets := &appsv1.DaemonSetList{}
	if err := c.List(ctx, sets); err != nil {
		return nil, fmt.Errorf("read the DaemonSets: %w", err)
	}
	installed := map[string]bool{}
	for i := range sets.Items {
		for _, plugin := range plugins {
			if name := sets.Items[i].Name; name == plugin || strings.HasPrefix(name, plugin+"-ds") {
				installed[plugin] = true
			}
		}
	}
	names := slices.Sorted(maps.Keys(installed))
	if len(names) > 1 {
		return []Finding{{Reason: TwoNetworkPlugins, Warning: true,
			Message: fmt.Sprintf("The cluster has DaemonSets of %d network plugins: %s.", len(names), strings.Join(names, ", ")),
			Fix:     "Remove all but one. Otherwise, the names of their configuration files determine which of them a new node uses."}}, nil
	}
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("read the Nodes: %w", err)
	}
	for i := range nodes.Items {
		for _, condition := range nodes.Items[i].Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue &&
				strings.Contains(condition.Message, "NetworkPluginNotReady") {
				return []Finding{{Reason: NoNetworkPlugin,
					Message: fmt.Sprintf("Node %s has no network plugin, so it does not become Ready.", nodes.Items[i].Name),
					Fix:     "Install a network plugin, such as Calico, Cilium or Flannel."}}, nil
			}
		}
	}
	return nil, nil
}

// webhook is an admission webhook that may refuse what Machinist writes.
type webhook struct {
	name    string
	service *admissionregistrationv1.ServiceReference
	policy  *admissionregistrationv1.FailurePolicyType
	rules   []admissionregistrationv1.RuleWithOperations
}

// webhooks reports admission webhooks that block the requests of machines because their Services have no endpoints.
func (c Cluster) webhooks(ctx context.Context) ([]Finding, error) {
	validating := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	mutating := &admissionregistrationv1.MutatingWebhookConfigurationList{}
	if err := errors.Join(c.List(ctx, validating), c.List(ctx, mutating)); err != nil {
		return nil, fmt.Errorf("read the webhooks: %w", err)
	}
	var all []webhook
	for i := range validating.Items {
		for _, w := range validating.Items[i].Webhooks {
			all = append(all, webhook{w.Name, w.ClientConfig.Service, w.FailurePolicy, w.Rules})
		}
	}
	for i := range mutating.Items {
		for _, w := range mutating.Items[i].Webhooks {
			all = append(all, webhook{w.Name, w.ClientConfig.Service, w.FailurePolicy, w.Rules})
		}
	}
	var found []Finding
	for _, w := range all {
		if w.service == nil || w.policy != nil && *w.policy == admissionregistrationv1.Ignore || !matchesMachinist(w.rules) {
			continue
		}
		endpoints := &discoveryv1.EndpointSliceList{}
		if err := c.List(ctx, endpoints, client.InNamespace(w.service.Namespace),
			client.MatchingLabels{discoveryv1.LabelServiceName: w.service.Name}); err != nil {
			return found, fmt.Errorf("read the EndpointSlices of service %s/%s: %w", w.service.Namespace, w.service.Name, err)
		}
		if ready(endpoints.Items) {
			continue
		}
		found = append(found, Finding{Reason: WebhookNotReachable,
			Message: fmt.Sprintf("Webhook %s can block requests that machines need, and its service %s/%s has no ready endpoint.",
				w.name, w.service.Namespace, w.service.Name),
			Fix: "Start the pods of the service, or delete the configuration of the webhook."})
	}
	return found, nil
}

// matchesMachinist reports whether the rules match Machinist's kinds, Nodes or CertificateSigningRequests.
func matchesMachinist(rules []admissionregistrationv1.RuleWithOperations) bool {
	of := func(list []string, name string) bool {
		return slices.Contains(list, name) || slices.Contains(list, "*")
	}
	return slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return slices.Contains(r.APIGroups, v1beta1.GroupName) ||
			of(r.APIGroups, "") && of(r.Resources, "nodes") ||
			of(r.APIGroups, certificatesv1.GroupName) && of(r.Resources, "certificatesigningrequests")
	})
}

func ready(all []discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(all, func(s discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
			return e.Conditions.Ready == nil || *e.Conditions.Ready
		})
	})
}
