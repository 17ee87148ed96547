package backup

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// The webhook learns later than the API server that a class permits adoption.
func TestMakeRetriesWhileAdmissionDoesNotKnowThePermission(t *testing.T) {
	invalid := func(path, why string) error {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Machine"}, "web-1",
			field.ErrorList{field.Forbidden(field.NewPath("spec", path), why)})
	}
	other := errors.New("other")
	for name, test := range map[string]struct {
		answers []error
		tries   int
		want    error
	}{
		"admitted later":              {[]error{invalid("providerID", "adoption"), invalid("providerID", "adoption"), nil}, 3, nil},
		"admitted at once":            {[]error{nil}, 1, nil},
		"rejected for another reason": {[]error{other}, 1, other},
	} {
		t.Run(name, func(t *testing.T) {
			tries := 0
			cluster := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
				Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
					tries++
					return test.answers[tries-1]
				}})
			if err := Create(t.Context(), cluster, object(t, machine)); !errors.Is(err, test.want) {
				t.Errorf("got %v, expected %v", err, test.want)
			}
			if tries != test.tries {
				t.Errorf("%d attempts, expected %d", tries, test.tries)
			}
		})
	}
	if err := Create(t.Context(), rejecting(invalid("version", "no")), object(t, machine)); !apierrors.IsInvalid(err) {
		t.Errorf("got %v", err)
	}
}

func rejecting(with error) client.Client {
	return interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return with }})
}
