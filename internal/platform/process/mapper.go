package process

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"machinist.dev/machinist/api/v1beta1"
)

// scopes returns the kinds that may be cached, with their scopes. Because they need not be looked up, a cluster's
// informers and indexes can be created while its API server is unreachable.
func scopes() map[schema.GroupVersionKind]meta.RESTScope {
	ours, core := v1beta1.GroupVersion, corev1.SchemeGroupVersion
	return map[schema.GroupVersionKind]meta.RESTScope{
		ours.WithKind("MachineClass"):            meta.RESTScopeNamespace,
		ours.WithKind("Machine"):                 meta.RESTScopeNamespace,
		ours.WithKind("MachineSet"):              meta.RESTScopeNamespace,
		ours.WithKind("MachineDeployment"):       meta.RESTScopeNamespace,
		ours.WithKind("MachineHealthCheck"):      meta.RESTScopeNamespace,
		ours.WithKind("MachineDisruptionBudget"): meta.RESTScopeNamespace,
		ours.WithKind("Migration"):               meta.RESTScopeNamespace,
		core.WithKind("Secret"):                  meta.RESTScopeNamespace,
		core.WithKind("ConfigMap"):               meta.RESTScopeNamespace,
		core.WithKind("Namespace"):               meta.RESTScopeRoot,
		core.WithKind("Node"):                    meta.RESTScopeRoot,

		ours.WithKind("Provider"): meta.RESTScopeRoot,

		core.WithKind("Pod"):                                      meta.RESTScopeNamespace,
		core.WithKind("Service"):                                  meta.RESTScopeNamespace,
		core.WithKind("ServiceAccount"):                           meta.RESTScopeNamespace,
		appsv1.SchemeGroupVersion.WithKind("Deployment"):          meta.RESTScopeNamespace,
		networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"): meta.RESTScopeNamespace,
		rbacv1.SchemeGroupVersion.WithKind("ClusterRole"):         meta.RESTScopeRoot,
		rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"):  meta.RESTScopeRoot,
		rbacv1.SchemeGroupVersion.WithKind("Role"):                meta.RESTScopeNamespace,
		rbacv1.SchemeGroupVersion.WithKind("RoleBinding"):         meta.RESTScopeNamespace,

		certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"): meta.RESTScopeRoot,
		policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"):             meta.RESTScopeNamespace,

		admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"): meta.RESTScopeRoot,
		admissionv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"):   meta.RESTScopeRoot,
	}
}

// knownFirst returns a mapper that knows the kinds in scopes, and asks next for all others.
func knownFirst(next meta.RESTMapper) meta.RESTMapper {
	known := meta.NewDefaultRESTMapper(nil)
	for gvk, scope := range scopes() {
		known.Add(gvk, scope)
	}
	return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{known, next}}
}
