package resolve

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/pkg/provider"
)

// Resolver reads the objects from which instances of Machines are created.
type Resolver struct {
	// Classes reads MachineClasses, from a cache or from the API server.
	Classes client.Reader
	// Secrets reads Secrets from the API server, without a cache.
	Secrets client.Reader
}

// Provider returns the provider of the Machine's inline specification or class, or "" if the class does not exist.
func (r *Resolver) Provider(ctx context.Context, m *v1beta1.Machine) (string, error) {
	if m.Spec.ClassRef == nil {
		return m.Spec.Provider, nil
	}
	class, err := r.class(ctx, m)
	if class == nil || err != nil {
		return "", err
	}
	return class.Spec.Provider, nil
}

// Resolve returns what a launch needs. An *Error means that an object is missing or must not be used. Other errors
// should be retried.
func (r *Resolver) Resolve(ctx context.Context, m *v1beta1.Machine) (Inputs, error) {
	out, from, err := r.describe(ctx, m)
	if err != nil {
		return Inputs{}, err
	}
	secret, err := r.credentials(ctx, m.Namespace, out.CredentialsRef)
	if err != nil {
		return Inputs{}, err
	}
	if secret != nil {
		out.Credentials = provider.NewCredentials(secret.Data).InNamespace(secret.Namespace)
		switch held := controllerutil.ContainsFinalizer(secret, v1beta1.InUseFinalizer); {
		case held:
		case !secret.DeletionTimestamp.IsZero():
			// The API server adds no finalizers to an object that is being deleted, so this Secret cannot be protected.
			out.Leaving = errorf(v1beta1.ReasonCredentialsNotFound,
				"Secret %q with the credentials is being deleted. Create the Secret again after its deletion.", secret.Name)
		case out.WaitMessage == "":
			out.WaitMessage = fmt.Sprintf("Waiting until Secret %q has the finalizer %s.", secret.Name, v1beta1.InUseFinalizer)
		}
	}
	if out.UserData, err = r.UserData(ctx, m.Namespace, from.ref, from.values); err != nil {
		return Inputs{}, err
	}
	out.CompressUserData = from.ref != nil && from.ref.Compress == v1beta1.UserDataGzip
	return out, nil
}

// ResolveForDeletion returns the inputs for finding and deleting an instance. A missing class or template is not an
// error, because status.instance has the necessary values. If no referenced credentials can be used, it returns an
// *Error with CredentialsNotFound or SecretNotLabelled.
//
// The Secret in status.instance needs the label too. Otherwise a client that may write the status could send any Secret
// of the namespace to the cloud.
func (r *Resolver) ResolveForDeletion(ctx context.Context, m *v1beta1.Machine) (Inputs, error) {
	out, _, err := r.describe(ctx, m)
	if _, missing := errors.AsType[*Error](err); err != nil && !missing {
		return Inputs{}, err
	}
	// The Secret of the current reference may be newer than that of the launch, so try it first.
	candidates := []*v1beta1.LocalRef{out.CredentialsRef}
	if recorded := m.Status.Instance; recorded != nil {
		if out.Provider == "" {
			out.Provider = recorded.Provider
		}
		candidates = append(candidates, recorded.CredentialsRef)
	}
	var missing *Error
	for _, ref := range candidates {
		if ref == nil {
			continue
		}
		secret, err := r.credentials(ctx, m.Namespace, ref)
		if e, ok := errors.AsType[*Error](err); ok {
			if missing == nil {
				missing = e
			}
			continue
		}
		if err != nil {
			return Inputs{}, err
		}
		out.CredentialsRef, out.Credentials = ref, provider.NewCredentials(secret.Data).InNamespace(secret.Namespace)
		return out, nil
	}
	if missing != nil {
		return Inputs{}, missing
	}
	return out, nil
}

type userData struct {
	ref    *v1beta1.UserDataRef
	values []v1beta1.UserDataValue
}

// describe returns the content of the class or inline specification without Secrets. If the method returns an *Error,
// the other results are empty.
func (r *Resolver) describe(ctx context.Context, m *v1beta1.Machine) (Inputs, userData, error) {
	inline := m.Spec.Provider != "" || m.Spec.ProviderSpec != nil
	switch {
	case m.Spec.ClassRef != nil && inline:
		return Inputs{}, userData{}, errorf(v1beta1.ReasonInvalidConfiguration,
			"spec has both classRef and an inline specification (provider, providerSpec); exactly one of them is allowed")
	case m.Spec.ClassRef != nil:
		class, err := r.class(ctx, m)
		if err != nil {
			return Inputs{}, userData{}, err
		}
		if class == nil {
			return Inputs{}, userData{}, errorf(v1beta1.ReasonClassNotFound, "MachineClass %q does not exist in namespace %q",
				m.Spec.ClassRef.Name, m.Namespace)
		}
		out := OfClass(class)
		if len(out.ProviderSpec) == 0 {
			return Inputs{}, userData{}, errorf(v1beta1.ReasonInvalidConfiguration, "spec.providerSpec of MachineClass %q is empty",
				class.Name)
		}
		return out, userData{class.Spec.UserDataRef, class.Spec.Values}, nil
	case m.Spec.Provider == "" || m.Spec.ProviderSpec == nil || len(m.Spec.ProviderSpec.Raw) == 0:
		return Inputs{}, userData{}, errorf(v1beta1.ReasonInvalidConfiguration,
			"spec has neither classRef nor a complete inline specification (provider, providerSpec)")
	}
	return Inputs{
		Provider:       m.Spec.Provider,
		ProviderSpec:   m.Spec.ProviderSpec.Raw,
		Adoption:       v1beta1.AdoptionForbid,
		CredentialsRef: m.Spec.CredentialsRef,
	}, userData{ref: m.Spec.UserDataRef}, nil
}

// OfClass resolves the fields of the class itself. OfClass reads no Secrets, so Credentials and UserData stay empty.
func OfClass(class *v1beta1.MachineClass) Inputs {
	out := Inputs{
		ClassName:      class.Name,
		ClassUID:       class.UID,
		Provider:       class.Spec.Provider,
		NodeProviderID: class.Spec.NodeProviderID,
		Adoption:       class.Spec.Adoption,
		AdoptFrom:      class.Annotations[v1beta1.AnnotationAdoptFromCluster],
		AdoptFromUntil: class.Annotations[v1beta1.AnnotationAdoptFromClusterUntil],
		CredentialsRef: class.Spec.CredentialsRef,
	}
	if out.Adoption == "" {
		out.Adoption = v1beta1.AdoptionForbid
	}
	switch {
	case DeletionReason(class) == v1beta1.ReasonDeletionStarted:
		out.WaitMessage = undecided(class)
	case !CanCreate(class):
		out.Leaving = classDeleting(class)
	case !controllerutil.ContainsFinalizer(class, v1beta1.InUseFinalizer):
		out.WaitMessage = fmt.Sprintf("Waiting until MachineClass %q has the finalizer %s.", class.Name, v1beta1.InUseFinalizer)
	}
	if class.Spec.ProviderSpec != nil {
		out.ProviderSpec = class.Spec.ProviderSpec.Raw
	}
	return out
}

func (r *Resolver) class(ctx context.Context, m *v1beta1.Machine) (*v1beta1.MachineClass, error) {
	class := &v1beta1.MachineClass{}
	key := client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClassRef.Name}
	switch err := r.Classes.Get(ctx, key, class); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read MachineClass %s: %w", key, err)
	}
	return class, nil
}

// Credentials returns the credentials in a Secret. Without a reference, it returns nothing and no error.
func (r *Resolver) Credentials(ctx context.Context, namespace string, ref *v1beta1.LocalRef) (provider.Credentials,
	error) {
	secret, err := r.credentials(ctx, namespace, ref)
	if secret == nil || err != nil {
		return provider.Credentials{}, err
	}
	return provider.NewCredentials(secret.Data).InNamespace(secret.Namespace), nil
}

// UsableFor reports whether the Secret's label allows the use: SecretUseCredentials or SecretUseUserData.
func UsableFor(secret client.Object, use string) bool {
	value := secret.GetLabels()[v1beta1.LabelSecretUse]
	return value == use || value == v1beta1.SecretUseBoth
}

// Usable reports whether the Secret's label allows any use.
func Usable(secret client.Object) bool {
	return UsableFor(secret, v1beta1.SecretUseCredentials) || UsableFor(secret, v1beta1.SecretUseUserData)
}

// notLabelled returns an error with the kubectl command that labels the Secret for the use. If the label already
// permits another use, the command adds the new use.
func notLabelled(secret *corev1.Secret, use string) *Error {
	value, overwrite := use, ""
	if _, found := secret.Labels[v1beta1.LabelSecretUse]; found {
		overwrite = " --overwrite"
		if Usable(secret) {
			value = v1beta1.SecretUseBoth
		}
	}
	return errorf(v1beta1.ReasonSecretNotLabelled,
		"Secret %q in namespace %q is not labelled for use as %s. If Machinist may use it, run: kubectl label secret %s --namespace=%s %s=%s%s",
		secret.Name, secret.Namespace, use, secret.Name, secret.Namespace, v1beta1.LabelSecretUse, value, overwrite)
}

func (r *Resolver) credentials(ctx context.Context, namespace string, ref *v1beta1.LocalRef) (*corev1.Secret, error) {
	if ref == nil {
		return nil, nil
	}
	secret, err := r.secret(ctx, namespace, ref.Name, v1beta1.ReasonCredentialsNotFound)
	switch {
	case err != nil:
		return nil, err
	case secret == nil:
		return nil, errorf(v1beta1.ReasonCredentialsNotFound, "Secret %q with the credentials does not exist in namespace %q",
			ref.Name, namespace)
	case !UsableFor(secret, v1beta1.SecretUseCredentials):
		return nil, notLabelled(secret, v1beta1.SecretUseCredentials)
	case len(secret.Data) == 0:
		return nil, errorf(v1beta1.ReasonCredentialsNotFound, "Secret %q in namespace %q is empty; it must contain credentials",
			ref.Name, namespace)
	}
	return secret, nil
}

// UserData reads a bootstrap template and replaces its VALUES placeholders. Without a reference, it returns nothing and
// no error.
func (r *Resolver) UserData(ctx context.Context, namespace string, ref *v1beta1.UserDataRef,
	values []v1beta1.UserDataValue) (Template, error) {
	if ref == nil {
		return nil, nil
	}
	secret, err := r.secret(ctx, namespace, ref.Name, v1beta1.ReasonUserDataNotFound)
	if err != nil {
		return nil, err
	}
	if secret == nil {
		return nil, errorf(v1beta1.ReasonUserDataNotFound, "Secret %q with the user data does not exist in namespace %q",
			ref.Name, namespace)
	}
	if !UsableFor(secret, v1beta1.SecretUseUserData) {
		return nil, notLabelled(secret, v1beta1.SecretUseUserData)
	}
	template, found := secret.Data[ref.KeyOrDefault()]
	if !found || strings.TrimSpace(string(template)) == "" {
		return nil, errorf(v1beta1.ReasonUserDataNotFound, "Secret %q in namespace %q has no user data under the key %q",
			ref.Name, namespace, ref.KeyOrDefault())
	}
	if bootstrap.Readable(template) != nil {
		return template, nil // Rendering reports the error.
	}
	texts, err := r.values(ctx, namespace, values)
	if err != nil {
		return nil, err
	}
	out, err := bootstrap.ReplaceValues(template, texts)
	if err != nil {
		return nil, errorf(v1beta1.ReasonInvalidConfiguration, "%s", err)
	}
	return out, nil
}

func (r *Resolver) values(ctx context.Context, namespace string, values []v1beta1.UserDataValue) (map[string]string,
	error) {
	texts := map[string]string{}
	for _, v := range values {
		switch from := v.ValueFrom; {
		case v.Value != nil:
			texts[v.Name] = *v.Value
		case from != nil && from.SecretKeyRef != nil:
			secret, err := r.secret(ctx, namespace, from.SecretKeyRef.Name, v1beta1.ReasonUserDataNotFound)
			switch {
			case err != nil:
				return nil, err
			case secret == nil:
				return nil, noValue(v.Name, "Secret", from.SecretKeyRef)
			case !UsableFor(secret, v1beta1.SecretUseUserData):
				return nil, notLabelled(secret, v1beta1.SecretUseUserData)
			}
			text, found := secret.Data[from.SecretKeyRef.Key]
			if !found {
				return nil, noValue(v.Name, "Secret", from.SecretKeyRef)
			}
			texts[v.Name] = string(text)
		case from != nil && from.ConfigMapKeyRef != nil:
			text, err := r.inConfigMap(ctx, namespace, v.Name, from.ConfigMapKeyRef)
			if err != nil {
				return nil, err
			}
			texts[v.Name] = text
		}
	}
	return texts, nil
}

func (r *Resolver) inConfigMap(ctx context.Context, namespace, name string, ref *v1beta1.KeyRef) (string, error) {
	configMap := &corev1.ConfigMap{}
	switch err := r.Secrets.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, configMap); {
	case apierrors.IsNotFound(err):
		return "", noValue(name, "ConfigMap", ref)
	case apierrors.IsForbidden(err):
		return "", forbiddenf(v1beta1.ReasonUserDataNotFound, "The provider may not read ConfigMap %q in namespace %q, which contains "+
			"the value of <<VALUES.%s>>. Add the namespace to the value userDataConfigMaps of the chart machinist-provider.", ref.Name,
			namespace, name)
	case err != nil:
		return "", fmt.Errorf("read ConfigMap %s/%s: %w", namespace, ref.Name, err)
	case !UsableFor(configMap, v1beta1.SecretUseUserData):
		return "", errorf(v1beta1.ReasonSecretNotLabelled, "ConfigMap %q in namespace %q is not labelled for use as user-data. If "+
			"Machinist may use it, run: kubectl label configmap %s --namespace=%s %s=%s", ref.Name, namespace, ref.Name, namespace,
			v1beta1.LabelSecretUse, v1beta1.SecretUseUserData)
	}
	text, found := configMap.Data[ref.Key]
	if !found {
		return "", noValue(name, "ConfigMap", ref)
	}
	return text, nil
}

func noValue(name, kind string, ref *v1beta1.KeyRef) *Error {
	return errorf(v1beta1.ReasonUserDataNotFound, "%s %q, which should contain the value of <<VALUES.%s>> under the key %q, does "+
		"not exist or has no such key", kind, ref.Name, name, ref.Key)
}

// secret returns a Secret, or nil if it does not exist. If the read is forbidden, secret returns an *Error with the
// given reason.
func (r *Resolver) secret(ctx context.Context, namespace, name, reason string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	switch err := r.Secrets.Get(ctx, key, secret); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		return nil, forbiddenf(reason, "The provider may not read Secret %q in namespace %q. Add the namespace to the value "+
			"secretNamespaces of the chart machinist-provider.", name, namespace)
	case err != nil:
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	return secret, nil
}
