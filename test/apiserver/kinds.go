package apiserver

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/install/manifests"
)

type kind struct {
	shape
	index      int
	gvk        schema.GroupVersionKind
	plural     string
	namespaced bool
	// definition is the name of the CustomResourceDefinition of the kind. The server serves the kind only while the
	// definition is stored. Kinds without a definition are always served.
	definition string
	strategy   strategy
	// fields contains the indexes of the fields of the Go struct, by JSON name, without the field of the metadata.
	fields map[string]int
}

type shape interface {
	goType() reflect.Type
	goListType() reflect.Type
	empty() client.Object
	// shallowCopy returns a copy of the object and its metadata. All other fields share their values with the
	// original.
	shallowCopy(client.Object) client.Object
	copyInto(dst, src client.Object)
	fill(list client.ObjectList, records []*record, deep, typeMeta bool)
}

type object[T any] interface {
	*T
	client.Object
	DeepCopyInto(*T)
}

type list[L any] interface {
	*L
	client.ObjectList
}

type typed[T any, P object[T], L any, Q list[L]] struct {
	items func(Q) *[]T
}

func (typed[T, P, L, Q]) goType() reflect.Type     { return reflect.TypeFor[T]() }
func (typed[T, P, L, Q]) goListType() reflect.Type { return reflect.TypeFor[L]() }
func (typed[T, P, L, Q]) empty() client.Object     { return P(new(T)) }

func (typed[T, P, L, Q]) shallowCopy(o client.Object) client.Object {
	c := *o.(P)
	return P(&c)
}

func (typed[T, P, L, Q]) copyInto(dst, src client.Object) {
	var c T
	src.(P).DeepCopyInto(&c)
	*dst.(P) = c
}

func (t typed[T, P, L, Q]) fill(l client.ObjectList, records []*record, deep, typeMeta bool) {
	items := make([]T, len(records))
	for i, r := range records {
		if deep {
			r.object.(P).DeepCopyInto(&items[i])
		} else {
			items[i] = *r.object.(P)
		}
		if !typeMeta {
			P(&items[i]).GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		}
	}
	*t.items(l.(Q)) = items
}

func shapeOf[T any, P object[T], L any, Q list[L]](items func(Q) *[]T) shape {
	return typed[T, P, L, Q]{items: items}
}

type registry struct {
	kinds                                  []*kind
	byType                                 map[reflect.Type]*kind
	byList                                 map[reflect.Type]*kind
	byGVK                                  map[schema.GroupVersionKind]*kind
	mapper                                 meta.RESTMapper
	pods, budgets, namespaces, definitions *kind
	policies, bindings, configMaps         *kind
	signingRequests                        *kind
}

var builtRegistry = sync.OnceValue(func() *registry {
	r := &registry{
		byType: map[reflect.Type]*kind{},
		byList: map[reflect.Type]*kind{},
		byGVK:  map[schema.GroupVersionKind]*kind{},
	}
	// A client may ask for a kind of another system without a version.
	var versions []schema.GroupVersion
	for _, d := range otherDefinitions() {
		versions = append(versions, schema.GroupVersion{Group: d.Spec.Group, Version: storageVersion(d).Name})
	}
	mapper := meta.NewDefaultRESTMapper(versions)
	register := func(k *kind) {
		k.index = len(r.kinds)
		r.kinds, r.byGVK[k.gvk] = append(r.kinds, k), k
		scope := meta.RESTScopeRoot
		if k.namespaced {
			scope = meta.RESTScopeNamespace
		}
		gv := k.gvk.GroupVersion()
		mapper.AddSpecific(k.gvk, gv.WithResource(k.plural), gv.WithResource(strings.ToLower(k.gvk.Kind)), scope)
	}
	add := func(gv schema.GroupVersion, plural string, namespaced bool, shape shape, strategy strategy) {
		t := shape.goType()
		k := &kind{shape: shape, gvk: gv.WithKind(t.Name()), plural: plural, namespaced: namespaced, strategy: strategy,
			fields: jsonFields(t)}
		register(k)
		r.byType[t], r.byList[shape.goListType()] = k, k
	}

	shapes := map[string]shape{
		"Machine":            shapeOf(func(l *v1beta1.MachineList) *[]v1beta1.Machine { return &l.Items }),
		"MachineClass":       shapeOf(func(l *v1beta1.MachineClassList) *[]v1beta1.MachineClass { return &l.Items }),
		"MachineDeployment":  shapeOf(func(l *v1beta1.MachineDeploymentList) *[]v1beta1.MachineDeployment { return &l.Items }),
		"MachineHealthCheck": shapeOf(func(l *v1beta1.MachineHealthCheckList) *[]v1beta1.MachineHealthCheck { return &l.Items }),
		"MachineDisruptionBudget": shapeOf(func(l *v1beta1.MachineDisruptionBudgetList) *[]v1beta1.MachineDisruptionBudget {
			return &l.Items
		}),
		"Migration":  shapeOf(func(l *v1beta1.MigrationList) *[]v1beta1.Migration { return &l.Items }),
		"Provider":   shapeOf(func(l *v1beta1.ProviderList) *[]v1beta1.Provider { return &l.Items }),
		"MachineSet": shapeOf(func(l *v1beta1.MachineSetList) *[]v1beta1.MachineSet { return &l.Items }),
	}
	for _, crd := range manifests.CRDs() {
		shape, ok := shapes[crd.Spec.Names.Kind]
		if !ok {
			panic(fmt.Sprintf("no Go type is known for the CustomResourceDefinition %s", crd.Name))
		}
		namespaced := crd.Spec.Scope == apiextensionsv1.NamespaceScoped
		add(v1beta1.GroupVersion, crd.Spec.Names.Plural, namespaced, shape, newCustomStrategy(crd))
	}
	core := corev1.SchemeGroupVersion
	add(core, "nodes", false, shapeOf(func(l *corev1.NodeList) *[]corev1.Node { return &l.Items }), newNodeStrategy())
	add(core, "pods", true, shapeOf(func(l *corev1.PodList) *[]corev1.Pod { return &l.Items }), newPodStrategy())
	add(core, "secrets", true, shapeOf(func(l *corev1.SecretList) *[]corev1.Secret { return &l.Items }), secretStrategy{})
	add(core, "configmaps", true, shapeOf(func(l *corev1.ConfigMapList) *[]corev1.ConfigMap { return &l.Items }),
		configMapStrategy{})
	add(core, "namespaces", false, shapeOf(func(l *corev1.NamespaceList) *[]corev1.Namespace { return &l.Items }),
		namespaceStrategy{statusStrategy{unconditional: true}})
	// Controllers only read the Service kubernetes and its endpoints, which do not exist in this server.
	add(core, "services", true, shapeOf(func(l *corev1.ServiceList) *[]corev1.Service { return &l.Items }), baseStrategy{})
	add(discoveryv1.SchemeGroupVersion, "endpointslices", true,
		shapeOf(func(l *discoveryv1.EndpointSliceList) *[]discoveryv1.EndpointSlice { return &l.Items }), baseStrategy{})
	// Controllers only read the claims of pods. The tests create claims that are bound already.
	add(core, "persistentvolumeclaims", true,
		shapeOf(func(l *corev1.PersistentVolumeClaimList) *[]corev1.PersistentVolumeClaim { return &l.Items }),
		baseStrategy{})
	add(policyv1.SchemeGroupVersion, "poddisruptionbudgets", true,
		shapeOf(func(l *policyv1.PodDisruptionBudgetList) *[]policyv1.PodDisruptionBudget { return &l.Items }),
		statusStrategy{generations: true})
	add(storagev1.SchemeGroupVersion, "volumeattachments", false,
		shapeOf(func(l *storagev1.VolumeAttachmentList) *[]storagev1.VolumeAttachment { return &l.Items }),
		attachmentStrategy{statusStrategy{fixedMeta: true}})
	add(certificatesv1.SchemeGroupVersion, "certificatesigningrequests", false,
		shapeOf(func(l *certificatesv1.CertificateSigningRequestList) *[]certificatesv1.CertificateSigningRequest {
			return &l.Items
		}), signingStrategy{})
	add(coordinationv1.SchemeGroupVersion, "leases", true,
		shapeOf(func(l *coordinationv1.LeaseList) *[]coordinationv1.Lease { return &l.Items }), leaseStrategy{})
	add(appsv1.SchemeGroupVersion, "daemonsets", true, shapeOf(func(l *appsv1.DaemonSetList) *[]appsv1.DaemonSet {
		return &l.Items
	}), statusStrategy{generations: true})
	add(appsv1.SchemeGroupVersion, "deployments", true, shapeOf(func(l *appsv1.DeploymentList) *[]appsv1.Deployment {
		return &l.Items
	}), workloadStrategy{statusStrategy{generations: true, unconditional: true}})
	add(admissionv1.SchemeGroupVersion, "validatingwebhookconfigurations", false,
		shapeOf(func(l *admissionv1.ValidatingWebhookConfigurationList) *[]admissionv1.ValidatingWebhookConfiguration {
			return &l.Items
		}), statusStrategy{generations: true})
	add(admissionv1.SchemeGroupVersion, "mutatingwebhookconfigurations", false,
		shapeOf(func(l *admissionv1.MutatingWebhookConfigurationList) *[]admissionv1.MutatingWebhookConfiguration {
			return &l.Items
		}), statusStrategy{generations: true})
	add(admissionv1.SchemeGroupVersion, "validatingadmissionpolicies", false,
		shapeOf(func(l *admissionv1.ValidatingAdmissionPolicyList) *[]admissionv1.ValidatingAdmissionPolicy {
			return &l.Items
		}),
		statusStrategy{generations: true})
	add(admissionv1.SchemeGroupVersion, "validatingadmissionpolicybindings", false,
		shapeOf(func(l *admissionv1.ValidatingAdmissionPolicyBindingList) *[]admissionv1.ValidatingAdmissionPolicyBinding {
			return &l.Items
		}), baseStrategy{})
	add(apiextensionsv1.SchemeGroupVersion, "customresourcedefinitions", false,
		shapeOf(func(l *apiextensionsv1.CustomResourceDefinitionList) *[]apiextensionsv1.CustomResourceDefinition {
			return &l.Items
		}), definitionStrategy{})
	add(eventsv1.SchemeGroupVersion, "events", true,
		shapeOf(func(l *eventsv1.EventList) *[]eventsv1.Event { return &l.Items }),
		baseStrategy{})
	for _, d := range otherDefinitions() {
		gv := schema.GroupVersion{Group: d.Spec.Group, Version: storageVersion(d).Name}
		register(&kind{shape: untyped{}, gvk: gv.WithKind(d.Spec.Names.Kind), plural: d.Spec.Names.Plural,
			namespaced: d.Spec.Scope == apiextensionsv1.NamespaceScoped, definition: d.Name, strategy: newUntypedStrategy(d)})
	}
	r.mapper = mapper
	r.definitions = r.byType[reflect.TypeFor[apiextensionsv1.CustomResourceDefinition]()]
	r.policies = r.byType[reflect.TypeFor[admissionv1.ValidatingAdmissionPolicy]()]
	r.bindings = r.byType[reflect.TypeFor[admissionv1.ValidatingAdmissionPolicyBinding]()]
	r.configMaps = r.byType[reflect.TypeFor[corev1.ConfigMap]()]
	r.pods, r.budgets = r.byType[reflect.TypeFor[corev1.Pod]()], r.byType[reflect.TypeFor[policyv1.PodDisruptionBudget]()]
	r.signingRequests = r.byType[reflect.TypeFor[certificatesv1.CertificateSigningRequest]()]
	r.namespaces = r.byType[reflect.TypeFor[corev1.Namespace]()]
	return r
})

func jsonFields(t reflect.Type) map[string]int {
	fields := map[string]int{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || f.Type == reflect.TypeFor[metav1.ObjectMeta]() {
			continue
		}
		fields[name] = i
	}
	return fields
}

func (r *registry) kindOf(o runtime.Object) (*kind, error) {
	switch o.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		gvk := o.GetObjectKind().GroupVersionKind()
		if meta.IsListType(o) {
			gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
		}
		if k, ok := r.byGVK[gvk]; ok {
			return k, nil
		}
		return nil, &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
	}
	t := reflect.TypeOf(o).Elem()
	if k, ok := r.byType[t]; ok {
		return k, nil
	}
	if k, ok := r.byList[t]; ok {
		return k, nil
	}
	return nil, fmt.Errorf("no kind is registered for type %s", t)
}

func (k *kind) resource() schema.GroupResource {
	return schema.GroupResource{Group: k.gvk.Group, Resource: k.plural}
}

func metaOf(o client.Object) *metav1.ObjectMeta {
	return o.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
}
