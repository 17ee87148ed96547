package api

import (
	"strings"
	"testing"

	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/manifests"
)

// Every bad manifest is refused with a message that names the field, by the guard that it is said to be refused by.
// Of the guards this control plane has no webhooks, so it admits what only those refuse: what the controllers must
// get along with.
//
// Rules: bad-input-names-field, immutable-fields, malformed-annotations-refused.
func TestBadManifests(t *testing.T) {
	awaitPolicies(t, true)
	namespace := env.Namespace(t)
	for _, bad := range manifests.All() {
		t.Run(bad.Name, func(t *testing.T) {
			object, err := bad.Object(namespace)
			if err != nil {
				t.Fatal(err)
			}
			if bad.Was == nil {
				err = tryCreate(t, object)
			} else {
				former, problem := bad.Former(namespace)
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
					t.Errorf("refused without a webhook: %v", err)
				}
				return
			case manifests.BySchema:
				if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
					t.Error("refused by a policy, not by the schema")
				}
			case manifests.ByPolicy:
				if err != nil && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
					t.Error("not refused by a policy")
				}
			}
			requireRejection(t, err, bad.Reports...)
		})
	}
}

// Only the text shows a key that is there twice; an object holds the last.
//
// Rule: bad-input-names-field.
func TestADuplicateKeyIsRefusedByStrictValidation(t *testing.T) {
	body := `{"apiVersion":"machinist.dev/v1beta1","kind":"Machine","metadata":{"name":"one"},"spec":{"classRef":{"name":"small"},"classRef":{"name":"large"}}}`
	err := restClient(t).Post().Namespace(env.Namespace(t)).Resource("machines").
		Param("dryRun", "All").Param("fieldValidation", "Strict").
		SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context()).Error()
	requireRejection(t, err, `duplicate field "spec.classRef"`)
}
