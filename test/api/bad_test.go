package api

import (
	"strings"
	"testing"

	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/manifests"
)

// For each bad manifest, the expected guard must refuse the manifest with a message that names the field. The control
// plane of this test has no webhooks, so it admits a manifest that only a webhook would refuse. The controllers must
// tolerate such objects.
//
// Rules: bad-input-names-field, immutable-fields, malformed-annotations-refused.
func TestBadManifestsAreRefused(t *testing.T) {
	awaitPolicies(t, true)
	namespace := env.Namespace(t)
	for _, bad := range manifests.InvalidObjects() {
		t.Run(bad.Name, func(t *testing.T) {
			object, err := bad.Object(namespace)
			if err != nil {
				t.Fatal(err)
			}
			if bad.ChangesBefore == nil {
				err = tryCreate(t, object)
			} else {
				former, problem := bad.ValidObject(namespace)
				if problem != nil {
					t.Fatal(problem)
				}
				former.SetName("")
				former.SetGenerateName("former-")
				create(t, former)
				object.SetName(former.GetName())
				object.SetResourceVersion(former.GetResourceVersion())
				err = tryUpdate(t, object)
			}
			switch bad.By {
			case manifests.ByManager, manifests.ByProvider:
				if err != nil {
					t.Errorf("the object is refused without a webhook: %v", err)
				}
				return
			case manifests.BySchema:
				if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
					t.Error("a policy refused the object, want the schema to refuse it")
				}
			case manifests.ByPolicy:
				if err != nil && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
					t.Errorf("got %v, want a policy to refuse the object", err)
				}
			}
			requireRejection(t, err, bad.Reports...)
		})
	}
}

// Only JSON text can contain a duplicate key, so the test sends JSON instead of an object.
//
// Rule: bad-input-names-field.
func TestStrictValidationRefusesDuplicateKeys(t *testing.T) {
	body := `{"apiVersion":"machinist.dev/v1beta1","kind":"Machine","metadata":{"name":"one"},"spec":{"classRef":{"name":"small"},"classRef":{"name":"large"}}}`
	err := restClient(t).Post().Namespace(env.Namespace(t)).Resource("machines").
		Param("dryRun", "All").Param("fieldValidation", "Strict").
		SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context()).Error()
	requireRejection(t, err, `duplicate field "spec.classRef"`)
}
