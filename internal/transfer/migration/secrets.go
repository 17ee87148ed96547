package migration

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
)

// secretReader reads each Secret and ConfigMap of old objects once. Authors of old objects can refer to Secrets that
// they may not read. The migrator therefore reads only Secrets in the namespace of the old objects, in a shared
// namespace, or with the label of their owner's consent.
type secretReader struct {
	live   client.Reader
	source string
	// sharedNamespaces lists the namespaces whose Secrets and ConfigMaps all old objects may use.
	sharedNamespaces []string
	seen             map[string]content
}

type content struct {
	data    map[string][]byte
	problem *unusableError
}

// unusableError explains why a Secret or ConfigMap cannot be used. An unusable object has the code and the message of
// a finding.
type unusableError struct{ code, message string }

func (r *secretReader) entries(ctx context.Context, kind string, name types.NamespacedName) (
	map[string][]byte, *unusableError, error) {
	outside := name.Namespace != r.source && !slices.Contains(r.sharedNamespaces, name.Namespace)
	return r.read(ctx, kind, name, outside)
}

// entriesForMigration returns the entries of a Secret that the Migration names. The author of the Migration may read
// this Secret.
func (r *secretReader) entriesForMigration(ctx context.Context, name types.NamespacedName) (
	map[string][]byte, *unusableError, error) {
	return r.read(ctx, "Secret", name, false)
}

// read returns the entries of a Secret or ConfigMap. If needsConsent is true, the object must have the label that
// permits the migration to use the object.
func (r *secretReader) read(ctx context.Context, kind string, name types.NamespacedName, needsConsent bool) (
	map[string][]byte, *unusableError, error) {
	key := fmt.Sprintf("%s/%s/%t", kind, name, needsConsent)
	if c, found := r.seen[key]; found {
		return c.data, c.problem, nil
	}
	var object client.Object
	switch kind {
	case "Secret":
		object = &corev1.Secret{}
	case "ConfigMap":
		object = &corev1.ConfigMap{}
	default:
		return nil, &unusableError{CodeSecretUnreadable, fmt.Sprintf("Values can be read from a Secret or ConfigMap, not from "+
			"a %s.", kind)}, nil
	}
	var c content
	switch err := r.live.Get(ctx, name, object); {
	case needsConsent && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err) ||
		err == nil && object.GetLabels()[v1beta1.LabelMigrationUse] != v1beta1.MigrationUseAllowed):
		// The message must not reveal which Secrets exist, so it is the same in all these cases.
		c.problem = &unusableError{CodeSecretNotAllowed, fmt.Sprintf("%[1]s %[2]s is not in the namespace %[3]s of the old "+
			"objects. Create a copy there and refer to it. Or allow its use with the label %[4]s=%[5]s, and add the namespace "+
			"%[6]s to the value migrator.namespaces of the chart machinist-provider, if it is missing there.", kind, name,
			r.source, v1beta1.LabelMigrationUse, v1beta1.MigrationUseAllowed, name.Namespace)}
	case apierrors.IsNotFound(err):
		c.problem = &unusableError{CodeSecretUnreadable, fmt.Sprintf("%s %s does not exist.", kind, name)}
	case apierrors.IsForbidden(err):
		c.problem = &unusableError{CodeSecretUnreadable, fmt.Sprintf("The migrator may not read %s %s. Add the namespace %s to "+
			"the value migrator.namespaces of the chart machinist-provider.", kind, name, name.Namespace)}
	case err != nil:
		return nil, nil, fmt.Errorf("read %s %s: %w", kind, name, err)
	default:
		c.data = entriesOf(object)
	}
	r.seen[key] = c
	return c.data, c.problem, nil
}

func entriesOf(object client.Object) map[string][]byte {
	switch o := object.(type) {
	case *corev1.Secret:
		return o.Data
	case *corev1.ConfigMap:
		data := map[string][]byte{}
		maps.Copy(data, o.BinaryData)
		for key, value := range o.Data {
			data[key] = []byte(value)
		}
		return data
	}
	return nil
}

func (r *secretReader) entry(ctx context.Context, ref source.KeyRef) ([]byte, *unusableError, error) {
	name := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	data, problem, err := r.entries(ctx, ref.Kind, name)
	if err != nil || problem != nil {
		return nil, problem, err
	}
	value, found := data[ref.Key]
	if !found {
		return nil, &unusableError{CodeSecretUnreadable, fmt.Sprintf("%s %s has no entry %s.", ref.Kind, name, ref.Key)}, nil
	}
	return value, nil, nil
}
